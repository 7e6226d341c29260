"""Files that are there whole, or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from os import PathLike, stat_result
from pathlib import Path

from labengine.trace.errors import TraceError

_SPECIAL = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
"""What has a name in a folder and is no file: renaming a file over it would do away with it."""


def write_whole(path: str | PathLike[str], content: bytes) -> None:
    """Write aside, then rename: who reads meanwhile sees the file of before.

    A link is followed, and a file that is there keeps its mode. TraceError when it cannot be done, and where there is
    something else than a file: nothing has changed then.
    """
    try:
        there = _file_at(path)
        target = Path(path).resolve()
        aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        _write_aside(aside, target, content, there)
    except (OSError, TypeError, ValueError) as error:
        raise TraceError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from error


def _file_at(path: str | PathLike[str]) -> stat_result | None:
    """What lies there, or where a link leads to; None for nothing. ValueError for what is no file."""
    try:
        there = Path(path).stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(there.st_mode):
        kind = _SPECIAL.get(stat.S_IFMT(there.st_mode), "something special")
        raise ValueError(f"there is {kind}, and no file that could be replaced; give the name of a file")
    return there


def _write_aside(aside: Path, target: Path, content: bytes, there: stat_result | None) -> None:
    try:
        with aside.open("xb") as file:
            if there is not None:
                _make_like(aside, there)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(target)
    finally:
        with suppress(OSError):
            aside.unlink()


def _make_like(aside: Path, there: stat_result) -> None:
    """Mode and, as far as we may give a file away, owner: who could not read the old content cannot read the new."""
    with suppress(OSError, AttributeError):
        os.chown(aside, there.st_uid, there.st_gid)
    aside.chmod(stat.S_IMODE(there.st_mode))
