"""Other engines' Python interfaces: scripts written for them run in a lab."""
