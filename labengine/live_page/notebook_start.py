"""PYTHONSTARTUP of the site's notebooks: IPython runs it at its start."""

__import__("labengine.live_page.notebooks", fromlist=["begin"]).begin()  # leaves no name in the reader's namespace
