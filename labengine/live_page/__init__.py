"""The lab in a page without Jupyter: Python runs in a worker of the page and opens the session that the URL names."""
