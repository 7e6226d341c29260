"""Removal of temporary files whose writers were interrupted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_NAME = re.compile(r"\..*\.(\d+)-[0-9a-f]{8}\.aside")


def remove_abandoned(temporary_files: Iterable[Path]) -> None:
    """Delete temporary files of writers that no longer run; those of a living process stay."""
    for path in temporary_files:
        match = _NAME.fullmatch(path.name)
        with suppress(OSError):
            if match and _is_abandoned(path, int(match[1])):
                path.unlink(missing_ok=True)


def _is_abandoned(path: Path, pid: int) -> bool:
    """Return True if the writer no longer runs. A process with its pid that started after the write is another one.

    Without psutil nothing is known about processes: no file counts as abandoned.
    """
    try:
        import psutil
    except ImportError:
        return False
    try:
        return bool(psutil.Process(pid).create_time() > path.stat().st_mtime)
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False
