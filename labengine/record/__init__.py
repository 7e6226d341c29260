"""A run as its events: their delivery, the states and figures that they add up to, and their files."""
