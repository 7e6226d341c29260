"""Which method decides what: the seam behind each kind of event, with its text."""
