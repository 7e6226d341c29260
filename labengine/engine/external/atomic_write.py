"""Files that appear complete or not at all, and what is left when their writer dies."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

ASIDE = ".*.aside"
"""Where to look for files that are being written, or never were finished."""
_NAME = re.compile(r"\..*\.(\d+)-[0-9a-f]{8}\.aside")


def write_atomically(path: Path, data: bytes, mtime_ns: int) -> None:
    """Write aside in the same folder, have it on the disk, rename; an existing file is replaced.

    OSError leaves nothing behind, and an old file as it was. Two writers of one path do not meet.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.stem}.{os.getpid()}-{token_hex(4)}.aside")
    try:
        with aside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.utime(aside, ns=(mtime_ns, mtime_ns))
        aside.replace(path)
    except BaseException:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise


def remove_abandoned(asides: Iterable[Path]) -> None:
    """Delete what interrupted writers left; what a living process is writing now stays."""
    for aside in asides:
        match = _NAME.fullmatch(aside.name)
        with suppress(OSError):
            if match and _is_abandoned(aside, int(match[1])):
                aside.unlink(missing_ok=True)


def _is_abandoned(aside: Path, pid: int) -> bool:
    """Its writer is gone; a process of the same number that is younger than the file is another one."""
    import psutil

    try:
        return bool(psutil.Process(pid).create_time() > aside.stat().st_mtime)
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False
