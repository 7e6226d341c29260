"""Processes marked in their environment, which their children inherit, even those that leave the session."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

MARK = "LABENGINE_STARTED_BY"
"""The variable with a process's mark."""


def new_mark() -> str:
    """Return a mark that no other process has."""
    return uuid4().hex


def end_marked(mark: str) -> None:
    """Kill all processes with a mark. On Linux, where /proc shows environments."""
    while found := [*_marked(mark)]:  # one that has just been started is found the next time
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _marked(mark: str) -> Iterator[int]:
    sought = f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's, or one that has ended
            if sought in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)
