"""Processes that a hostile patch has left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

VARIABLE = "HOSTILE_TEST"
"""A variable in the environment of what is started; its value is TESTS."""
TESTS = str(os.getpid())
NAP = f"1000.{TESTS}"
"""Seconds that a process sleeps, which tell it from others if it has another environment."""


def processes() -> Iterator[int]:
    """Yield the processes that labs of these tests have started, less the dead."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            environment, command = ((folder / name).read_bytes().split(b"\0") for name in ("environ", "cmdline"))
            if f"{VARIABLE}={TESTS}".encode() in environment or (command[0] == b"sleep" and NAP.encode() in command):
                yield int(folder.name)
