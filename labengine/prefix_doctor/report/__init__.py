"""A diagnosis as a page, as JSON, and for other programs."""
