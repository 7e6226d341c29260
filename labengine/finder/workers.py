"""Searchers in separate processes: for all cores, with limits of time and memory, safe from parts that exit or hang.

Each searcher reports the end of its search. One that ends without a report is lost, and counts as not having searched.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import wait
from time import monotonic
from typing import Any

from labengine.config import ConfigError
from labengine.finder.judged_alone import LOST, judged_alone
from labengine.finder.judgement import GRAVE, Case
from labengine.finder.limits import AFTER_S
from labengine.finder.sandbox import Finding
from labengine.finder.scopes import Scope
from labengine.finder.search import Found, SearchCounts, Task, search
from labengine.isolation.alone import Copy, exit_of
from labengine.isolation.board import Board
from labengine.isolation.channel import Receiver, Sender
from labengine.isolation.limits import SearchEndedError, can_fork, operations_end

SILENCE_S = 15.0
"""Seconds without a message after which a searcher's workload is played alone; at most a third of the search."""
ENDING_S = 3.0
"""Seconds after the search's time within which its processes must report their end."""
MAX_LIVES = 4
"""Most processes that one searcher may lose."""
NOT_ENDED = "One worker had not finished when the search ended."
FROM_OUTSIDE = (1, 2, 9, 15)
"""Signals that may also come from the system or the user: SIGHUP, SIGINT, SIGKILL, SIGTERM."""
_OF_A_PROCESS = {"MemoryError": "its memory was full", "endless": "an operation took too long"}
"""Rules that a searcher may report because of all its workloads or a crowded machine, each with why it is then lost."""
_NEXT_SEED = 1_000_003
_MESSAGE_S = 0.2

Message = tuple[int, Found | SearchCounts]
"""A searcher's number, and a finding or its counts."""


@dataclass(frozen=True)
class Ended:
    """A searcher's last message. why_lost: why its search is incomplete; error: to be raised by `find`."""

    why_lost: str = ""
    error: Exception | None = None


def in_this_process(tasks: Sequence[Task], seconds: float) -> Iterator[Message]:
    """Search all tasks in slices, without processes or threads. A part that ends its process ends this one."""
    deadline = monotonic() + seconds
    counts = [SearchCounts() for _ in tasks]
    searches = {number: search(task, deadline) for number, task in enumerate(tasks)}
    try:
        with operations_end(deadline + AFTER_S):
            while searches:
                for number, one in list(searches.items()):
                    for message in one:
                        yield number, message
                        if isinstance(message, SearchCounts):
                            counts[number] = message
                            break
                    else:
                        del searches[number]
    except SearchEndedError as error:
        for number in searches:
            counts[number].cut(f"{NOT_ENDED} One of its operations was running: {error}.")
            yield number, counts[number]


def in_executor(executor: Executor, tasks: Sequence[Task], seconds: float) -> Iterator[Message]:
    """Search in the caller's pool: anything with the interface of concurrent.futures.

    The share of a searcher that the pool loses is searched in processes here.
    """
    deadline = monotonic() + seconds
    futures = {executor.submit(_searched, task, seconds): number for number, task in enumerate(tasks)}
    open_ones = dict(futures)
    try:
        for future in as_completed(futures, timeout=seconds + AFTER_S):
            number = open_ones.pop(future)
            try:
                messages, ended = future.result()
            except Exception as error:  # the pool's, because a searcher does not raise
                yield from _in_its_place(number, tasks[number], deadline, error)
                continue
            if ended.error is not None:
                raise ended.error
            for message in messages:
                yield number, message
    except TimeoutError:
        for number in open_ones.values():
            yield number, SearchCounts(remarks=[NOT_ENDED], is_cut=True)
    finally:
        for future in futures:
            future.cancel()


def _in_its_place(number: int, task: Task, deadline: float, error: Exception) -> Iterator[Message]:
    seconds = deadline - monotonic()
    if not can_fork() or seconds <= 0:
        raise RuntimeError(f"the pool lost a worker, so its search is incomplete: {error!r}") from error
    for _, message in in_processes([task], seconds):
        yield number, message


def _searched(task: Task, seconds: float) -> tuple[list[Found | SearchCounts], Ended]:
    """Return a search's findings up to the first grave one, its last counts, and its last message."""
    counts, found = SearchCounts(), list[Found]()
    try:
        for _, message in in_this_process([task], seconds):
            if isinstance(message, SearchCounts):
                counts = message
                continue
            found.append(message)
            if message.is_shrunk and message.finding.kind in GRAVE:
                break
    except Exception as error:
        return [], Ended(error=_failure(error))
    return [*found, counts], Ended()


def in_processes(tasks: Sequence[Task], seconds: float) -> Iterator[Message]:
    """Search in forked processes, which know all classes and patches of this one. Ends with the last of them."""
    searchers: list[_Searcher] = []
    deadline, patience = monotonic() + seconds, min(SILENCE_S, seconds / 3)
    try:
        for number, task in enumerate(tasks):
            searchers.append(_Searcher(number, task, deadline, patience))
        has_found = False
        while (open_ones := [one for one in searchers if one.is_open]) and monotonic() < deadline + ENDING_S:
            receivers: list[Any] = [one.messages for one in open_ones]
            ready: list[Any] = wait(receivers, timeout=min(0.5, patience))
            for one in open_ones:
                messages: Iterator[Message] = iter(())
                if one.messages in ready:
                    messages = one.received()
                elif one.is_silent and not has_found and monotonic() < deadline:
                    messages = one.asked()
                for message in messages:
                    has_found = has_found or isinstance(message[1], Found)
                    yield message
            yield open_ones[0].newest
        for one in open_ones:
            yield one.left_open()
    finally:
        for one in searchers:
            one.stop()


class _Searcher:
    """One process, seen from outside.

    A process that dies, fills its memory, is slow or is silent is not a finding yet, because the machine may be the
    cause. Its last workload is played again, alone in a fresh process.
    """

    def __init__(self, number: int, task: Task, deadline: float, patience: float) -> None:
        """patience: seconds of silence after which its workload is played alone."""
        self.is_open = False
        self._number, self._task = number, task
        self._deadline, self._patience = deadline, patience
        self._before, self._counts = SearchCounts(), SearchCounts()
        self._num_lives = 0
        self._begin(task)

    def _begin(self, task: Task) -> None:
        self._num_lives += 1
        self._heard_at = monotonic()
        self._copy = Copy(partial(_work, task, max(0.0, self._deadline - monotonic())))
        self.is_open = True

    @property
    def messages(self) -> Receiver:
        """The receiver of its messages."""
        return self._copy.messages

    @property
    def is_silent(self) -> bool:
        """True if it has been silent for long, because it hangs or gets no processor time."""
        return monotonic() - self._heard_at > self._patience and not self.messages.is_ready(0)

    @property
    def newest(self) -> Message:
        """Its newest counts."""
        return self._number, self._before.plus(self._counts)

    def received(self) -> Iterator[Message]:
        """Yield the messages received so far."""
        self._heard_at = monotonic()
        for message in self.messages.received():
            if isinstance(message, Ended):
                if message.error is not None:
                    raise message.error
                if message.why_lost:
                    yield from self._restart(message.why_lost)
                else:
                    self.stop()
                return
            if isinstance(message, SearchCounts):
                self._counts = message
                yield self.newest
            elif (why := _OF_A_PROCESS.get(message.finding.rule)) is None or self._is_confirmed(message):
                yield self._number, message
            else:
                yield from self._restart(why)
                return
        if self.messages.is_at_end:
            yield from self._lost()

    def asked(self) -> Iterator[Message]:
        """Yield the result of playing a silent process's workload alone."""
        self._heard_at = monotonic()
        if (found := self._judged_alone()) is not None:
            yield self._number, Found(*found, False)
            self.stop()

    def _lost(self) -> Iterator[Message]:
        """Yield the reason that the process has ended, or closed its pipe, without a report."""
        self._copy.process.join(1)
        code = self._copy.process.exitcode
        found = self._judged_alone()
        if found is None and -(code or 0) not in FROM_OUTSIDE and (case := self._noted()) is not None:
            message = f"a worker's process ends ({exit_of(code)}), though not because of the last workload by itself"
            found = Finding("liveness", message, LOST, ends_process=True), case
        if found is not None:
            yield self._number, Found(*found, False)
            self.stop()
        else:
            yield from self._restart("its process was ended")

    def _restart(self, what: str) -> Iterator[Message]:
        """Continue with random workloads in another process, unless this has happened too often."""
        self.stop()
        self._counts.remarks.append(f"One worker was lost, though not because of its last workload: {what}.")
        self._before = self._before.plus(self._counts)
        self._counts = SearchCounts(is_cut=self._num_lives >= MAX_LIVES)
        yield self.newest
        if self._num_lives < MAX_LIVES and monotonic() < self._deadline:
            self._begin(replace(self._task, small=(), seed=self._task.seed + _NEXT_SEED * self._num_lives))

    def left_open(self) -> Message:
        """Return the counts of a process that has not finished at the end of the search."""
        self._counts.cut(NOT_ENDED)
        return self.newest

    def _is_confirmed(self, message: Found) -> bool:
        found = judged_alone(message.case, self._task.judgement, self._deadline + AFTER_S)
        return found is not None and found[0].rule == message.finding.rule

    def _judged_alone(self) -> tuple[Finding, Case] | None:
        """Play the last workload noted by the process."""
        case = self._noted()
        return None if case is None else judged_alone(case, self._task.judgement, self._deadline + AFTER_S)

    def _noted(self) -> Case | None:
        try:
            packed_scope, workload = pickle.loads(self._copy.board.kept)
            return Case(pickle.loads(packed_scope), workload)
        except Exception:  # no workload was noted, or one is just being written
            return None

    def stop(self) -> None:
        """End the process. Twice is harmless."""
        if self.is_open:
            self.is_open = False
            self._copy.end()


def _work(task: Task, seconds: float, sender: Sender, board: Board) -> None:
    """Search in this process; send the findings, then the end of the search."""
    task.judgement.notes.append(_Notes(board, sender).keep)
    ended = Ended()
    with operations_end(), suppress(OSError):  # the receiver is gone, or a part has closed the pipe
        try:
            _send_all(search(task, monotonic() + seconds), sender)
        except MemoryError:  # the searcher's: a part's exception would be a finding
            ended = Ended("its memory was full")
        except Exception as error:
            ended = Ended(error=_failure(error))
        except BaseException as error:
            ended = Ended(f"it was ended by {type(error).__name__}")
        sender.send(ended)


def _failure(error: Exception) -> Exception:
    """Return `find`'s exception for a failed searcher: its ConfigError, or a RuntimeError for a bug in the finder."""
    return ConfigError(str(error)) if isinstance(error, ConfigError) else RuntimeError(f"a searcher failed: {error!r}")


def _send_all(messages: Iterator[Found | SearchCounts], sender: Sender) -> None:
    sent_at = 0.0
    message: Found | SearchCounts | None = None
    for message in messages:
        if not isinstance(message, SearchCounts) or monotonic() - sent_at > _MESSAGE_S:
            sent_at = monotonic()
            sender.send(message)
    sender.send(message or SearchCounts())


class _Notes:
    """Keeps the newest workload on the board."""

    def __init__(self, board: Board, sender: Sender) -> None:
        self._board, self._sender = board, sender
        self._scope: Scope | None = None
        self._packed_scope = b""

    def keep(self, case: Case) -> None:
        """Note a workload before it is played; its scope, which is large, is packed only once.

        A process whose pipe was closed by the previous workload ends here, and leaves that workload behind.
        """
        if self._sender.is_closed:
            os._exit(0)
        if case.scope is not self._scope:
            self._scope, self._packed_scope = case.scope, pickle.dumps(case.scope)
        self._board.keep(pickle.dumps((self._packed_scope, case.workload)))
