"""Atomic writes: a file is replaced completely or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

TEMPORARY = ".*.aside"
"""Pattern of the files that are being written, or that an interrupted writer left."""


def write_atomically(
    path: Path, data: bytes, *, mtime_ns: int | None = None, mode: int = 0o666, like: os.stat_result | None = None
) -> None:
    """Write a temporary file in the same folder, flush it to the disk, and rename it to `path`.

    mtime_ns: the file's modification time, None for now. mode: its permissions, before the umask. like: a status whose
    mode and owner it gets instead. Raises OSError, and leaves nothing behind and an old file unchanged. Two writers of
    one path do not disturb each other.
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
    """Have files that are made in the block readable by this user alone: they have the prompts of others."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _copy_permissions(path: Path, like: os.stat_result) -> None:
    """Copy mode and, where permitted, owner: a user who could not read the old content cannot read the new."""
    with suppress(OSError, AttributeError):
        os.chown(path, like.st_uid, like.st_gid)
    path.chmod(stat.S_IMODE(like.st_mode))
