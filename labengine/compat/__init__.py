"""Other engines' front doors: scripts that were written for them run here, and can be looked into."""
