"""A copy of this process that answers once: what it says, or why it never will."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import warnings
from functools import partial
from math import inf
from multiprocessing.connection import Connection
from pickle import UnpicklingError
from typing import Any

from labengine.finder.limits import limit_memory

NUM_ASLEEP = 60
"""Looks in a row at which a process slept, and had computed nothing, after which it waits for ever. Counted, not timed:
a process that is starved, stopped or waits for a disk does not sleep, and a frozen machine looks at nothing."""
LOOK_S = 0.05
KILLED = -9
"""Exit code of a process that was killed."""


class NoAnswerError(Exception):
    """Raised when a process will never answer; its text says why."""


class KilledError(NoAnswerError):
    """Raised when a process was killed: by what it ran, or by a machine that is short of memory."""


def can_fork() -> bool:
    """Return True where a process can be copied with all its classes: on Linux."""
    return sys.platform.startswith("linux")


class Child:
    """A copy of this process, which calls target(end, *arguments) and sends its answer through `end`.

    computing_s: processor seconds that it may take. No clock decides that it is endless: it counts as that by the
    processor time that it took, or because it sleeps.
    """

    def __init__(self, target: Any, *arguments: Any, computing_s: float) -> None:
        self._computing_s = computing_s
        self._connection, end = multiprocessing.Pipe(duplex=False)
        self._process = forked(_run, target, end, *arguments)
        end.close()
        self._num_asleep = 0
        self._computed = 0.0

    def answer(self, deadline: float = inf) -> Any:
        """Return what the process says; None where it has not at the deadline (monotonic). Raises NoAnswerError."""
        while not self._connection.poll(LOOK_S):
            self._refuse_endless()
            if time.monotonic() > deadline:
                return None
        try:
            return self._connection.recv()
        except (EOFError, OSError, UnpicklingError):
            self._process.join(1)
            if self._process.exitcode == KILLED:
                raise KilledError("its process was killed (signal 9)") from None
            raise NoAnswerError(f"it ends the process ({exit_of(self._process)})") from None

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self._connection.close()

    def _refuse_endless(self) -> None:
        before = self._computed
        state, self._computed = _state_and_seconds(self._process.pid)
        if self._computed > self._computing_s:
            seconds = f"{self._computing_s:g} s of processor time"
            raise NoAnswerError(f"alone in a process it had not come back after {seconds}")
        is_asleep = self._computed == before and state == "S"
        self._num_asleep = self._num_asleep + 1 if is_asleep else 0
        if self._num_asleep > NUM_ASLEEP:
            raise NoAnswerError("alone in a process it waits for something that never comes")


def _run(target: Any, end: Connection, *arguments: Any) -> None:
    begin_alone()
    target(end, *arguments)


def begin_alone() -> None:
    """Limit this copy of a process, and leave Ctrl-C to the process that it was copied from.

    A copy of it that a part makes ends at once: it would go on with the search.
    """
    limit_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.register_at_fork(after_in_child=partial(os._exit, 0))


def exit_of(process: Any) -> str:
    """Return how a process ended: 'exit code 0', 'signal 9'."""
    code = process.exitcode
    if code is None:
        return "a closed connection"
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def forked(target: Any, *arguments: Any) -> Any:
    """Start a copy of this process that calls the target."""
    context: Any = multiprocessing.get_context("fork")
    process = context.Process(target=target, args=arguments, daemon=True)
    with warnings.catch_warnings():  # Python 3.12 warns of threads; the copy touches none of their locks
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    return process


def _state_and_seconds(pid: int) -> tuple[str, float]:
    """Return a process's state (R: runs or would like to, S: sleeps, T: stopped ...) and its processor time."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state, *fields = file.read().rpartition(")")[2].split()
    except OSError:  # it has ended
        return "X", 0.0
    return state, (int(fields[10]) + int(fields[11])) / os.sysconf("SC_CLK_TCK")
