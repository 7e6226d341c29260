"""Judging two runs of the same request: wrong content of the KV cache, other rounding, or equal."""
