"""Access to a user's files: reading and unpacking within limits of memory and time, and replacing atomically."""

from __future__ import annotations

import stat
import zlib
from os import PathLike, stat_result
from pathlib import Path

from labengine.atomic_write import write_atomically
from labengine.trace.limits import Limits
from labengine.trace.parsing import TraceError

_CHUNK = 1 << 22
_COPIES = 3
"""Copies of the text in memory, while it is joined and cut into lines."""


def content(path: str | PathLike[str], limits: Limits) -> bytes:
    """Return the bytes of a file. Raises TraceError when it cannot be read, is no file, or is too large."""
    try:
        _refuse_special(path)
        with Path(path).open("rb") as file:
            raw = file.read(limits.max_bytes + 1)
    except (OSError, TypeError, ValueError) as error:
        raise TraceError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    limits.refuse_size(len(raw), "the file itself takes")
    return raw


def _refuse_special(path: str | PathLike[str]) -> None:
    """Raise ValueError for a pipe or a device, which might never end. (Opening a folder fails by itself.)"""
    mode = Path(path).stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ValueError("it is no file")


def unpacked(raw: bytes, limits: Limits) -> bytes:
    """Return the text of a gzip file of one member. Raises TraceError if damaged, too large, or of another kind."""
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
        limits.refuse_size(num_bytes, "its text takes")
        left = reader.unconsumed_tail
    pieces.append(reader.flush())
    return pieces


_SPECIAL = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
"""Entries of a folder that are no files: renaming a file over one would remove it."""


def replace_file(path: str | PathLike[str], content: bytes) -> None:
    """Write a file atomically: a concurrent reader sees the old content.

    A link is followed, and an existing file keeps its mode. Raises TraceError when that fails or when the path is
    something else than a file: nothing has changed then.
    """
    try:
        present = _file_at(path)
        write_atomically(Path(path).resolve(), content, like=present)
    except (OSError, TypeError, ValueError) as error:
        raise TraceError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from error


def _file_at(path: str | PathLike[str]) -> stat_result | None:
    """Return the status of the file at `path`, links followed; None for none. Raises ValueError unless it is a file."""
    try:
        present = Path(path).stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(present.st_mode):
        kind = _SPECIAL.get(stat.S_IFMT(present.st_mode), "something special")
        raise ValueError(f"there is {kind}, and no file that could be replaced; give the name of a file")
    return present
