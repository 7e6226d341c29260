"""Decisions of SGLang 0.5.23 that differ from the tree's own classes."""
