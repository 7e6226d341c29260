"""Decisions of mini-sglang at commit 20fcd7f that differ from the tree's own classes."""
