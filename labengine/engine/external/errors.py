"""What a store says when it cannot give or keep one block."""

from __future__ import annotations


class StoreError(Exception):
    """One block could not be read or kept; the message says why, readably."""
