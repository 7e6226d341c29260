"""Decides: blocks, hashes, requests, schedules. Standard library only."""
