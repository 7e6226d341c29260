"""Conformance: the inputs of a recorded vLLM scheduler, given to an edition; the first event in which they differ."""
