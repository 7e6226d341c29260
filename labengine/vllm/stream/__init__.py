"""Streams that the tap on a vLLM scheduler writes, read into recordings that every view shows."""
