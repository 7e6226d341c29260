"""A workload alone in a fresh process: whether it goes wrong by itself, or only a searcher's process did."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import warnings
from functools import partial
from mmap import mmap
from multiprocessing.connection import Connection
from pickle import UnpicklingError
from typing import Any

from labengine.finder.judgement import Case, Judgement
from labengine.finder.limits import limit_memory, operations_end
from labengine.finder.sandbox import Finding

COMPUTING_S = 3.0
"""Processor seconds after which a workload is endless; alone, it takes some thousandths of that."""
NUM_ASLEEP = 100
"""Looks in a row at which a process slept, and had computed nothing, after which it waits for ever. Counted, not timed:
a process that is starved, stopped or waits for a disk does not sleep, and a frozen machine looks at nothing."""
_LOOK_S = 0.05
KILLED = -9
"""Exit code of a process that was killed."""


def judged_alone(case: Case, judgement: Judgement, deadline: float) -> tuple[Finding, Case] | None:
    """Play a workload in a forked process of its own; return what goes wrong, as Judgement.of.

    None where nothing does, where the process was killed once, and where it was not done at the deadline (monotonic).
    No clock decides what goes wrong: a process counts as endless by the processor time that it took, or because it
    sleeps. A process that is killed is tried once more: the machine may have killed the first one.
    """
    for is_last in (False, True):
        player = _Player(case, judgement)
        try:
            return player.answer(deadline)
        except KilledError:
            if is_last:
                return player.endless("its process was killed (signal 9), and so was another one")
        finally:
            player.end()
    return None


class KilledError(Exception):
    """Raised when a process that plays a workload was killed: by a part, or by a machine that is short of memory."""


class _Player:
    """One process that plays one workload."""

    def __init__(self, case: Case, judgement: Judgement) -> None:
        self._case = case
        self._begun = mmap(-1, 8)
        self._num_asleep = 0
        self._connection, end = multiprocessing.Pipe(duplex=False)
        self._process = forked(_play, case, judgement, end, self._begun)
        end.close()
        self._computed = 0.0

    def answer(self, deadline: float) -> tuple[Finding, Case] | None:
        """Return what the process says, or what it shows by its silence. Raises KilledError if it was killed."""
        while not self._connection.poll(_LOOK_S):
            if (reason := self._why_endless()) is not None:
                return self.endless(reason)
            if time.monotonic() > deadline:
                return None
        try:
            found: tuple[Finding, Case] | None = self._connection.recv()
            return found
        except (EOFError, OSError, UnpicklingError):
            self._process.join(1)
            if self._process.exitcode == KILLED:
                raise KilledError from None
            return self.endless(f"it ends the process ({exit_of(self._process)})")

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self._connection.close()

    def _why_endless(self) -> str | None:
        """Return why the process will never answer; None while it may."""
        before = self._computed
        state, self._computed = _state_and_seconds(self._process.pid)
        if self._computed > COMPUTING_S:
            return f"alone in a process it had not come back after {COMPUTING_S:g} s of processor time"
        is_asleep = self._computed == before and state == "S"
        self._num_asleep = self._num_asleep + 1 if is_asleep else 0
        return "alone in a process it waits for something that never comes" if self._num_asleep > NUM_ASLEEP else None

    def endless(self, reason: str) -> tuple[Finding, Case]:
        workload = self._case.workload
        begun = int.from_bytes(self._begun[:8], "little") or len(workload)
        operation = workload[begun - 1] if workload else "the end"
        finding = Finding("liveness", f"{operation} does not return: {reason}", "endless")
        return finding, Case(self._case.scope, workload[:begun])


def _play(case: Case, judgement: Judgement, end: Connection, begun: mmap) -> None:
    begin_alone()

    def note(number: int) -> None:
        begun[:8] = number.to_bytes(8, "little")

    with operations_end():
        try:
            sandbox = judgement.sandbox(case.scope)
            sandbox.on_begin = note
            end.send(judgement.of(case, sandbox))
        except Exception:
            end.send(None)


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
