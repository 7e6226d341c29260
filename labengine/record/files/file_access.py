"""Access to a user's files: reading and unpacking within limits of memory and time, and replacing atomically."""

from __future__ import annotations

import zlib
from numbers import Real
from os import PathLike, stat_result
from pathlib import Path
from time import monotonic

from labengine.config import ConfigError, checked_int, shown
from labengine.record.files.parsing import TraceError
from labengine.system.atomic_write import write_atomically
from labengine.system.regular_file import kind_of, open_regular

MAX_BYTES = 1_000_000_000
MAX_SECONDS = 10.0
MAX_ALLOWED_SECONDS = 1e9
MAX_ALLOWED_BYTES = 2**62

BYTES_PER_BLOCK = 150
"""Memory of one block in a state: counts, keys, content and its place in the queue."""

STATES_WHILE_OPENING = 4


class Limits:
    """The memory and time allowed for one opening; the clock starts at construction.

    max_bytes: memory, >= 1. max_seconds: > 0. Raises ConfigError for other values.
    """

    def __init__(self, path: object, max_bytes: int = MAX_BYTES, max_seconds: float = MAX_SECONDS) -> None:
        self.max_bytes = checked_int("max_bytes", max_bytes, 1, MAX_ALLOWED_BYTES)
        is_number = isinstance(max_seconds, Real) and not isinstance(max_seconds, bool)
        if not is_number or not 0 < max_seconds < MAX_ALLOWED_SECONDS:
            raise ConfigError(f"max_seconds must be a number above 0, got {shown(max_seconds)}")
        self.path = path
        self._max_seconds = max_seconds
        self._deadline = monotonic() + max_seconds

    def refuse_size(self, num_bytes: int, what: str) -> None:
        """Raise TraceError for data that takes more memory than allowed. what: the beginning of the second clause."""
        if num_bytes > self.max_bytes:
            raise TraceError(
                f"{self.path} needs too much memory to open: {what} at least {_size(num_bytes)}, and the limit is "
                f"{_size(self.max_bytes)}. If you trust the file, use labengine.open(path, max_bytes={num_bytes})"
            )

    def refuse_pool(self, num_blocks: int) -> None:
        """Raise TraceError for a pool whose states do not fit."""
        self.refuse_size(STATES_WHILE_OPENING * BYTES_PER_BLOCK * num_blocks, f"states of {num_blocks:,} blocks need")

    def refuse_line(self, line: bytes) -> None:
        """Raise TraceError for a line of JSON that is too large once parsed."""
        self.refuse_size(parsed_size(line), f"a line of {len(line):,} bytes needs")

    def refuse_late(self) -> None:
        """Raise TraceError when the time is up."""
        if monotonic() > self._deadline:
            raise TraceError(
                f"{self.path} takes longer to open than {self._max_seconds:g} s. If you trust the file, use "
                f"labengine.open(path, max_seconds={10 * self._max_seconds:g})"
            )

    def cache_size(self, maximum: int, num_bytes: int) -> int:
        """Return how many items of num_bytes may be cached: at most `maximum`, and in a third of the memory."""
        return max(1, min(maximum, self.max_bytes // 3 // max(1, num_bytes)))


def parsed_size(line: bytes) -> int:
    """Return an upper bound for the bytes of a line's JSON as Python objects, estimated from its separators."""
    containers = 96 * line.count(b"[") + 240 * line.count(b"{")
    return len(line) + 40 * (1 + line.count(b",")) + containers + 30 * line.count(b'"')


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 10**8 else f"{num_bytes / 1e6:.1f} MB"


_CHUNK = 1 << 22
_COPIES = 3
"""Copies of the text in memory while it is joined and split into lines."""


def content(path: str | PathLike[str], limits: Limits) -> bytes:
    """Return the bytes of a file. Raises TraceError if it cannot be read, is not a file, or is too large."""
    try:
        with open_regular(path) as file:
            raw = file.read(limits.max_bytes + 1)
    except (OSError, TypeError, ValueError) as error:
        raise TraceError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    limits.refuse_size(len(raw), "the file itself needs")
    return raw


def unpacked(raw: bytes, limits: Limits) -> bytes:
    """Return the text of a gzip file with one member. Raises TraceError if damaged, too large, or of another kind."""
    if not raw.startswith(b"\x1f\x8b"):
        raise TraceError(f"{limits.path} is not a labengine trace: use lab.save(...) to write one")
    reader = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        pieces = _pieces(reader, raw, limits)
    except zlib.error as error:
        raise TraceError(f"{limits.path} is damaged or incomplete ({error}): download it again") from None
    if not reader.eof or reader.unused_data.strip(b"\0"):
        raise TraceError(f"{limits.path} is damaged or incomplete: download it again")
    return b"".join(pieces)


def _pieces(reader: zlib._Decompress, raw: bytes, limits: Limits) -> list[bytes]:
    pieces, num_bytes, left = [], len(raw), raw
    while left and not reader.eof:
        limits.refuse_late()
        pieces.append(reader.decompress(left, _CHUNK))
        num_bytes += _COPIES * len(pieces[-1])
        limits.refuse_size(num_bytes, "its text needs")
        left = reader.unconsumed_tail
    pieces.append(reader.flush())
    return pieces


def replace_file(path: str | PathLike[str], content: bytes) -> None:
    """Write a file atomically: a concurrent reader sees the old content.

    Links are followed, and an existing file keeps its mode. If that fails, or the path is not a file, raises TraceError
    with nothing changed.
    """
    try:
        present = _file_at(path)
        write_atomically(Path(path).resolve(), content, like=present)
    except (OSError, TypeError, ValueError) as error:
        raise TraceError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from error


def _file_at(path: str | PathLike[str]) -> stat_result | None:
    """Return the status of the file at `path`, links followed; None for none.

    Raises ValueError for anything but a file, which a rename would remove.
    """
    try:
        present = Path(path).stat()
    except FileNotFoundError:
        return None
    if (kind := kind_of(present.st_mode)) is not None:
        raise ValueError(f"it is {kind}, not a file; name a file")
    return present
