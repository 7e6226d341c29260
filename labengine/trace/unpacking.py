"""A file's bytes, and what they unpack to: never more than there may be."""

from __future__ import annotations

import stat
import zlib
from os import PathLike
from pathlib import Path

from labengine.trace.errors import TraceError
from labengine.trace.limits import Limits

_CHUNK = 1 << 22
_COPIES = 3
"""Of the text, while it is put together and cut into lines."""


def content(path: str | PathLike[str], limits: Limits) -> bytes:
    """Return the bytes of a file. TraceError when it cannot be read, is no file, or is too large."""
    try:
        _refuse_special(path)
        with Path(path).open("rb") as file:
            raw = file.read(limits.max_bytes + 1)
    except (OSError, TypeError, ValueError) as error:
        raise TraceError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    limits.refuse_beyond(len(raw), "the file itself takes")
    return raw


def _refuse_special(path: str | PathLike[str]) -> None:
    """A pipe or a device might never end. (A folder says so itself.)"""
    mode = Path(path).stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ValueError("it is no file")


def unpacked(raw: bytes, limits: Limits) -> bytes:
    """Return the text of a gzip file of one member. TraceError for what is none, damaged, or larger than it may be."""
    if not raw.startswith(b"\x1f\x8b"):
        raise TraceError(f"{limits.path} is no trace of labengine: lab.save(...) writes them")
    reader = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        pieces = _pieces(reader, raw, limits)
    except zlib.error as error:
        raise TraceError(f"{limits.path} is damaged or incomplete ({error}): get it again") from None
    if not reader.eof or reader.unused_data.strip(b"\0"):
        raise TraceError(f"{limits.path} is damaged or incomplete: get it again")
    return b"".join(pieces)


def _pieces(reader: zlib._Decompress, raw: bytes, limits: Limits) -> list[bytes]:
    pieces, num_bytes, left = [], len(raw), raw
    while left and not reader.eof:
        limits.refuse_late()
        pieces.append(reader.decompress(left, _CHUNK))
        num_bytes += _COPIES * len(pieces[-1])
        limits.refuse_beyond(num_bytes, "its text takes")
        left = reader.unconsumed_tail
    pieces.append(reader.flush())
    return pieces
