"""Time at the desk: what was put in, going back and another way, stopping at what one waits for."""
