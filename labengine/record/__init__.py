"""A run as its events: their delivery, the state and the figures that they add up to, and files of them."""
