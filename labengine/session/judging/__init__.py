"""Judging two runs of the same request: wrong content in the KV cache, other rounding, or equal."""
