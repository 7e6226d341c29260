"""Token ids in few bytes, for prompts that are kept as long as the lab lives."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

_CODES = ((2**16, "H"), (2**32, "I"), (2**64, "Q"))
"""Ids below each bound, and the array code that holds them: 2, 4 and 8 bytes."""


def pack(token_ids: Sequence[int]) -> bytes:
    """The ids, all from 0 to below 2**63: one byte for the array's code, then the array."""
    largest = max(token_ids, default=0)
    code = next(code for bound, code in _CODES if largest < bound)
    return code.encode() + array(code, token_ids).tobytes()


def unpack(packed: bytes) -> Sequence[int]:
    """The ids again."""
    return array(chr(packed[0]), packed[1:])
