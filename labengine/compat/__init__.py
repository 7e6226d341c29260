"""Other engines' Python interfaces: scripts written for them run here in a lab."""
