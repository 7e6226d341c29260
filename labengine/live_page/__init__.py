"""The lab of a page without Jupyter: Python runs in the page itself, in a worker, and opens what the address says."""
