"""The prefix-cache doctor: why each request hit or missed, from a recording."""
