"""Hostile patches of a driven engine, and the processes that they have left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

VARIABLE = "HOSTILE_TEST"
"""A variable in the environment of what is started; its value is TESTS."""
TESTS = str(os.getpid())
NAP = f"1000.{TESTS}"
"""Seconds that a process sleeps, which tell it from others if it has another environment."""

NUM_OF_LAB = 3
"""Processes of a lab: the one that has imported the engine, its copy, and what stands for that here."""


@contextmanager
def hostile_tests() -> Iterator[None]:
    """Mark what is started."""
    with pytest.MonkeyPatch.context() as patching:
        patching.setenv(VARIABLE, TESTS)
        yield


def processes() -> Iterator[int]:
    """Yield the processes that labs of these tests have started, less the dead."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            environment, command = ((folder / name).read_bytes().split(b"\0") for name in ("environ", "cmdline"))
            if f"{VARIABLE}={TESTS}".encode() in environment or (command[0] == b"sleep" and NAP.encode() in command):
                yield int(folder.name)


class Hostile(NamedTuple):
    """act: Python in a method; said: a part of the error, in which {method} is that method."""

    act: str
    said: str


LOST = "its process ended with status"
ENDINGS = (
    Hostile("(lambda again: again(again))(lambda again: again(again))", "RecursionError in "),
    Hostile("import os; os._exit(0)", f"{LOST} 0"),
    Hostile("import os; os._exit(7)", f"{LOST} 7"),
    Hostile("import os; os.abort()", f"{LOST} -6"),
    Hostile("import os; os.kill(os.getpid(), 9)", f"{LOST} -9"),
    Hostile("import os; os.kill(os.getpid(), 15)", f"{LOST} -15"),
    Hostile("import ctypes; ctypes.string_at(0)", f"{LOST} -11"),
    Hostile("import os; os.execv('/bin/true', ['true'])", LOST),
    Hostile("import os; os.fork()", "RuntimeError in {method}: it forks its process"),
)
"""Acts that end the process or try to leave it, for the stub and for vLLM alike."""
