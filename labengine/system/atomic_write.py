"""Atomic writes: a file is replaced completely or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

TEMPORARY = ".*.aside"
"""Pattern of temporary files: those being written, and those an interrupted writer left behind."""


def write_atomically(
    path: Path, data: bytes, *, mtime_ns: int | None = None, mode: int = 0o666, like: os.stat_result | None = None
) -> None:
    """Write a temporary file in the same folder, flush it to disk, and rename it to `path`.

    mtime_ns: the file's modification time, None for now. mode: its permissions, before the umask. like: a status whose
    mode and owner to copy instead. Raises OSError; it then leaves an old file unchanged and no other file behind. Two
    writers of one path do not disturb each other.
    """
    temporary = path.with_name(f".{path.stem}.{os.getpid()}-{token_hex(4)}.aside")
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            if like is not None:
                _copy_permissions(temporary, like)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if mtime_ns is not None:
            os.utime(temporary, ns=(mtime_ns, mtime_ns))
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


@contextmanager
def only_for_the_user() -> Iterator[None]:
    """Make files created in the block readable only by this user: they contain other people's prompts."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _copy_permissions(path: Path, like: os.stat_result) -> None:
    """Copy the mode and, if permitted, the owner: a user who could not read the old file cannot read the new one."""
    with suppress(OSError, AttributeError):
        os.chown(path, like.st_uid, like.st_gid)
    path.chmod(stat.S_IMODE(like.st_mode))
