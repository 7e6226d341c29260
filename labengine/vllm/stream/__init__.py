"""Streams of the tap on a vLLM scheduler, read into recordings for all views."""
