"""Files that a user names: opened for reading, and refused at once, not waited for, if they are no files."""

from __future__ import annotations

import os
import stat
from errno import EINVAL, EISDIR
from io import BufferedReader
from os import PathLike

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
"""What can be at a path besides a file, by the type in its mode."""

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: str | PathLike[str]) -> BufferedReader:
    """Open a file for reading; links are followed.

    Raises TypeError for no path, and OSError, with a strerror, for what cannot be read or is no file: opening or
    reading a pipe or a device may wait for ever.
    """
    path = os.fspath(path)  # no number: os.stat would take an open file
    _refuse_others(os.stat(path), path)
    file = os.fdopen(os.open(path, _FLAGS), "rb")
    try:
        _refuse_others(os.fstat(file.fileno()), path)  # it may have been replaced since
    except BaseException:
        file.close()
        raise
    return file


def read_regular(path: str | PathLike[str]) -> bytes:
    """Return a file's bytes. Raises OSError as open_regular does."""
    with open_regular(path) as file:
        return file.read()


def kind_of(mode: int) -> str | None:
    """Return what a mode stands for, such as 'a pipe'; None for a file."""
    return None if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "something special")


def _refuse_others(found: os.stat_result, path: object) -> None:
    kind = kind_of(found.st_mode)
    if kind is not None:
        raise OSError(EISDIR if stat.S_ISDIR(found.st_mode) else EINVAL, f"it is {kind}, and no file", str(path))
