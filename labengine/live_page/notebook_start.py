"""What IPython executes at its start in the site's notebooks: their PYTHONSTARTUP."""

__import__("labengine.live_page.notebooks", fromlist=["begin"]).begin()  # leaves no name in the reader's namespace
