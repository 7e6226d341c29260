"""Conformance: give the inputs of a recorded vLLM scheduler to an edition, and find the first event that differs."""
