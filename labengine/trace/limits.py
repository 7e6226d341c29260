"""Limits of memory and time for opening a trace, compared with the file's claims before anything is allocated."""

from __future__ import annotations

from numbers import Real
from time import monotonic

from labengine.config import ConfigError, checked_int, shown
from labengine.trace.parsing import TraceError

MAX_BYTES = 1_000_000_000
MAX_SECONDS = 10.0
MAX_ALLOWED_SECONDS = 1e9
MAX_ALLOWED_BYTES = 2**62

BYTES_PER_BLOCK = 150
"""Memory of one block in a state: counts, keys, content and place in the queue."""

STATES_WHILE_OPENING = 4


class Limits:
    """The memory and time allowed for one opening; the clock starts at construction.

    max_bytes: memory, >= 1. max_seconds: > 0. Raises ConfigError for other values.
    """

    def __init__(self, path: object, max_bytes: int = MAX_BYTES, max_seconds: float = MAX_SECONDS) -> None:
        self.max_bytes = checked_int("max_bytes", max_bytes, 1, MAX_ALLOWED_BYTES)
        is_number = isinstance(max_seconds, Real) and not isinstance(max_seconds, bool)
        if not is_number or not 0 < max_seconds < MAX_ALLOWED_SECONDS:
            raise ConfigError(
                f"max_seconds must be a number above 0: how long opening may take; got {shown(max_seconds)}"
            )
        self.path = path
        self._max_seconds = max_seconds
        self._deadline = monotonic() + max_seconds

    def refuse_size(self, num_bytes: int, what: str) -> None:
        """Raise TraceError for data that takes more memory than allowed. what: begins the message's second half."""
        if num_bytes > self.max_bytes:
            raise TraceError(
                f"{self.path} takes too much memory to open: {what} at least {_size(num_bytes)}, and "
                f"{_size(self.max_bytes)} are allowed; if you trust it: labengine.open(path, max_bytes={num_bytes})"
            )

    def refuse_pool(self, num_blocks: int) -> None:
        """Raise TraceError for a pool whose states do not fit."""
        self.refuse_size(STATES_WHILE_OPENING * BYTES_PER_BLOCK * num_blocks, f"states of {num_blocks:,} blocks take")

    def refuse_line(self, line: bytes) -> None:
        """Raise TraceError for a line of JSON that is too large once parsed."""
        self.refuse_size(parsed_size(line), f"a line of {len(line):,} bytes takes")

    def refuse_late(self) -> None:
        """Raise TraceError when the time is over."""
        if monotonic() > self._deadline:
            raise TraceError(
                f"{self.path} takes longer to open than {self._max_seconds:g} s; if you trust it: "
                f"labengine.open(path, max_seconds={10 * self._max_seconds:g})"
            )

    def cache_size(self, maximum: int, num_bytes: int) -> int:
        """Return how many items of num_bytes may be cached: at most `maximum`, in a third of the memory."""
        return max(1, min(maximum, self.max_bytes // 3 // max(1, num_bytes)))


def parsed_size(line: bytes) -> int:
    """Return an upper bound for the bytes of a line's JSON as Python objects, counted by its separators."""
    containers = 96 * line.count(b"[") + 240 * line.count(b"{")
    return len(line) + 40 * (1 + line.count(b",")) + containers + 30 * line.count(b'"')


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 10**8 else f"{num_bytes / 1e6:.1f} MB"
