"""Make a call in a forked process with limits of time, memory and output; return its answer, or how the process ended.

Each call is a fork, so it has the closures, patches and classes of a notebook's cells. Pools (concurrent.futures,
pebble) pickle a call for workers that were started earlier, and report of a lost worker only that it is lost.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any

from labengine.isolation import looks
from labengine.isolation.board import Board, NoAnswer, Why
from labengine.isolation.channel import Receiver, Sender
from labengine.isolation.confinement import confine, end_session, end_with_starter
from labengine.isolation.endings import named, refuse_copies, text_of
from labengine.isolation.limits import can_fork, ends_soon
from labengine.isolation.memory_limit import limit_memory, open_reserve
from labengine.isolation.output import Print, redirect_output

COMPUTING_S = 3.0
"""Processor seconds after which a call into C counts as endless; Python code is ended earlier."""
NUM_KILLED = 3
"""Consecutive calls ended by SIGKILL after which the code is to blame, not a system short of memory."""
_LOOKS_AHEAD = 20
"""Extra looks before this process judges: the copy, which knows the place, judges first."""


def called_alone(
    function: Callable[[Board], Any], deadline: float, output: Print | None = None, *, is_bounded: bool = True
) -> Any:
    """Call a function in a forked process; return its result, or a NoAnswer.

    The function notes its runs on the board. Before the deadline (monotonic), no wall clock decides: a call is endless
    if a run takes too much processor time, or if it sleeps. A call that ends its process is repeated, to find the
    place. output: receives the function's printed text. is_bounded: False sets no limit on time, memory and output;
    only the ending is observed.
    """

    def call(output: Print | None = None, *, is_traced: bool = False) -> Any:
        process = _Call(function, output, is_bounded, is_traced)
        try:
            return process.answer(deadline)
        finally:
            process.end()

    found = call(output)
    for _ in range(1, NUM_KILLED):
        if not _is_killed(found):
            break
        again = call()
        if not _is_killed(again) or again.begun != found.begun:
            return found
    if not isinstance(found, NoAnswer) or found.why not in ("exit", "killed"):
        return found
    again = call(is_traced=True)
    is_the_same = isinstance(again, NoAnswer) and again.why == found.why and again.begun == found.begun
    return replace(found, why="exit", reason=again.reason if is_the_same else found.reason)


def _is_killed(found: Any) -> bool:
    return isinstance(found, NoAnswer) and found.why == "killed"


class Copy:
    """A running copy of this process: its messages, and its board, which outlives it."""

    def __init__(self, work: Callable[[Sender, Board], object], *, is_heard: bool = False, is_bounded: bool = True):
        """work: run in the copy, which then ends. is_heard: also send its printed text, as ("stdout", text).

        is_bounded: False sets no limit on its memory and output.
        """
        self.board, self.messages = Board(), Receiver()
        sender = self.messages.sender
        self.process = forked(_work, work, sender, self.messages, self.board, is_heard, is_bounded)
        sender.close()

    def end(self) -> None:
        """End the copy and the processes that it started. Calling it twice is harmless."""
        end_session(self.process.pid)
        self.process.kill()
        self.process.join()
        self.messages.close()


def _work(
    work: Callable[[Sender, Board], object],
    sender: Sender,
    receiver: Receiver,
    board: Board,
    is_heard: bool,
    is_bounded: bool,
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the original process, which then ends this one
    receiver.close()
    sender.own()
    refuse_copies()
    confine()
    end_with_starter()
    if is_bounded:
        limit_memory()
    redirect_output((lambda name, text: sender.send((name, text))) if is_heard else None, is_bounded=is_bounded)
    work(sender, board)
    os._exit(0)


class _Call(Copy):
    """A copy that makes one call."""

    def __init__(
        self, function: Callable[[Board], Any], output: Print | None, is_bounded: bool, is_traced: bool
    ) -> None:
        self._output, self._is_bounded = output, is_bounded
        self._num_asleep, self._computed, self._computed_before, self._begun = 0, 0.0, 0.0, 0
        work = partial(_answer, function, is_traced)
        super().__init__(work, is_heard=output is not None, is_bounded=is_bounded)

    def answer(self, deadline: float) -> Any:
        """Return the process's answer, or a NoAnswer if it ends or will never send one."""
        is_listening = True
        while True:
            has_ended = self.process.exitcode is not None
            if not is_listening:
                self.process.join(looks.LOOK_S)
            elif self.messages.is_ready(looks.LOOK_S):
                for kind, message in self.messages.received():
                    if kind == "answer":
                        return message
                    if self._output is not None:
                        self._output(kind, message)
                is_listening = not self.messages.is_at_end
            if has_ended or (not is_listening and self.board.is_finished):
                return self._ended()
            if self._is_bounded and (silence := self._why_silent()) is not None:
                return silence
            if monotonic() > deadline:
                return self.board.no_answer("late", "it had not returned in time")

    def _ended(self) -> NoAnswer:
        """Return how a process without an answer ended: a part ended it or closed its pipe."""
        if self.board.is_finished:
            return NoAnswer("exit", "it closes files of the process that it did not open", self.board.begun)
        code = self.process.exitcode
        why: Why = "killed" if code == -signal.SIGKILL else "exit"  # the system kills processes when memory is short
        where = f", in {self.board.place}" if self.board.place else ""
        return self.board.no_answer(why, f"it ends the process ({exit_of(code)}){where}")

    def _why_silent(self) -> NoAnswer | None:
        """Return why the process will never answer; None while it still may."""
        begun, before = self.board.begun, self._computed
        state, self._computed = _state_and_seconds(self.process.pid)
        if begun != self._begun:
            self._begun, self._num_asleep, self._computed_before = begun, 0, before
        if self._computed - self._computed_before > COMPUTING_S:
            reason = f"it had not returned after {COMPUTING_S:g} s of processor time"
            return self.board.no_answer("endless", reason)
        is_asleep = self._computed == before and state == "S"
        self._num_asleep = self._num_asleep + 1 if is_asleep else 0
        if self._num_asleep > looks.NUM_ASLEEP + _LOOKS_AHEAD:
            return self.board.no_answer("asleep", "it is waiting for something that never comes")
        return None


def _answer(function: Callable[[Board], Any], is_traced: bool, sender: Sender, board: Board) -> None:
    if is_traced:
        sys.setprofile(board.note_place)
    try:
        answer = function(board)
    except MemoryError:
        open_reserve()
        answer = board.no_answer("memory", "its memory was full")
    except Exception as error:
        answer = board.no_answer("failed", named(error))
    except BaseException as error:
        answer = board.no_answer("exit", f"it ends the process ({named(error)})")
    sys.setprofile(None)
    board.finish()
    _send_answer(sender, answer, board)


def _send_answer(sender: Sender, answer: Any, board: Board) -> None:
    try:
        sender.send(("answer", answer))
    except OSError:  # a part closed the pipe; the board shows that the call returned
        pass
    except BaseException as error:  # the answer cannot be pickled, or memory is full
        open_reserve()
        why: Why = "memory" if isinstance(error, MemoryError) else "failed"
        sender.send(("answer", board.no_answer(why, "its memory was full" if why == "memory" else text_of(error))))


def ending_of(act: Callable[[], object]) -> str:
    """Return how an act ends its process, or that it raises or takes a minute; empty if it returns.

    Tests made by `to_test()` call this. The act runs in a copy of this process, or, except on Linux, in this process.
    """
    if not can_fork():
        act()
        return ""

    def call(board: Board) -> None:
        with ends_soon():
            act()

    answer = called_alone(call, monotonic() + 60.0)
    return answer.reason if isinstance(answer, NoAnswer) else ""


def exit_of(code: int | None) -> str:
    """Describe how a process ended."""
    if code is None:
        return "it is still running"
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def forked(target: Any, *arguments: Any) -> Any:
    """Fork this process; the copy calls the target."""
    from multiprocessing import get_context

    context: Any = get_context("fork")
    process = context.Process(target=target, args=arguments, daemon=True)
    with warnings.catch_warnings():  # Python 3.12 warns about threads; the copy touches none of their locks
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    return process


def _state_and_seconds(pid: int) -> tuple[str, float]:
    """Return a process's state (R: running or runnable, S: sleeping, T: stopped ...) and its processor time."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state, *fields = file.read().rpartition(")")[2].split()
    except OSError:  # it has ended
        return "X", 0.0
    return state, (int(fields[10]) + int(fields[11])) / os.sysconf("SC_CLK_TCK")
