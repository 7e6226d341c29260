"""Foreign code in a copy of this process: with limits, in a session of its own, and with its end told in words."""
