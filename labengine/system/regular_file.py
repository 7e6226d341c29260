"""Reading files that a user names; pipes, folders and devices are refused at once instead of waited for."""

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
"""Kinds of paths other than files, by the type in their mode."""

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: str | PathLike[str]) -> BufferedReader:
    """Open a file for reading; links are followed.

    Raises TypeError for anything but a path, and OSError, with a strerror, for a path that cannot be read or is not a
    regular file: opening or reading a pipe or a device may wait forever.
    """
    path = os.fspath(path)  # refuse numbers: os.stat would accept a file descriptor
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
    """Return the kind of a path from its mode, such as 'a pipe'; None for a file."""
    return None if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "something special")


def _refuse_others(found: os.stat_result, path: object) -> None:
    kind = kind_of(found.st_mode)
    if kind is not None:
        raise OSError(EISDIR if stat.S_ISDIR(found.st_mode) else EINVAL, f"it is {kind}, not a file", str(path))
