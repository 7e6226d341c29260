"""Processes marked in their environment and by what they print to, which their children inherit in any session."""

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


def end_marked(mark: str, output: int) -> None:
    """Kill all processes with a mark, or whose errors go to a file of this process. On Linux, where /proc shows both.

    output: the file's descriptor here; nothing else may write to it.
    """
    sought = f"{MARK}={mark}".encode()
    while found := [*_marked(sought, os.fstat(output))]:  # one that has just been started is found the next time
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _marked(mark: bytes, output: os.stat_result) -> Iterator[int]:
    this = str(os.getpid())  # its own errors may go there, if it began without a file for them
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's, or one that has ended
            is_marked = mark in (folder / "environ").read_bytes().split(b"\0")
            if folder.name != this and (is_marked or os.path.samestat((folder / "fd" / "2").stat(), output)):
                yield int(folder.name)
