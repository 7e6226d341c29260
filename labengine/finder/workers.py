"""Searchers in processes of their own: all cores, limits of time and memory, and a part that ends or never returns.

Each searcher says when its search has ended. One that ends without saying so is lost, and has searched nothing.
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
"""Seconds without a message after which a searcher's workload is played alone; in a short search, a third of it."""
ENDING_S = 3.0
"""Seconds after the search's own within which its processes have to say that they have ended."""
MAX_LIVES = 4
"""Processes that one searcher may use up."""
NOT_ENDED = "One searcher had not come to its end at the end of the search."
FROM_OUTSIDE = (1, 2, 9, 15)
"""Signals that a process gets from the system or its user, too: SIGHUP, SIGINT, SIGKILL, SIGTERM."""
_NEXT_SEED = 1_000_003
_MESSAGE_S = 0.2

Message = tuple[int, Found | SearchCounts]
"""A searcher's number, and what it has found or counted."""


@dataclass(frozen=True)
class Ended:
    """A searcher's last message. why_lost: why it has not searched to its end; error: what `find` has to raise."""

    why_lost: str = ""
    error: Exception | None = None


def in_this_process(tasks: Sequence[Task], seconds: float) -> Iterator[Message]:
    """Search task after task in slices, without processes or threads. A part that ends its process ends this one."""
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
            counts[number].cut(f"{NOT_ENDED} An operation had not come back: it was in {error}.")
            yield number, counts[number]


def in_executor(executor: Executor, tasks: Sequence[Task], seconds: float) -> Iterator[Message]:
    """Search in a pool of the caller's: anything with the interface of concurrent.futures.

    What a searcher would have searched that the pool has lost is searched in processes here.
    """
    deadline = monotonic() + seconds
    futures = {executor.submit(_searched, task, seconds): number for number, task in enumerate(tasks)}
    open_ones = dict(futures)
    try:
        for future in as_completed(futures, timeout=seconds + AFTER_S):
            number = open_ones.pop(future)
            try:
                messages, ended = future.result()
            except Exception as error:  # the pool's: a searcher raises nothing
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
        raise RuntimeError(f"a searcher was lost in the pool, and has not searched: {error!r}") from error
    for _, message in in_processes([task], seconds):
        yield number, message


def _searched(task: Task, seconds: float) -> tuple[list[Found | SearchCounts], Ended]:
    """Return the findings of a search, up to the first grave one, its last counts, and that it has ended."""
    counts, found = SearchCounts(), list[Found]()
    with operations_end(monotonic() + seconds + AFTER_S):
        try:
            for message in search(task, monotonic() + seconds):
                if isinstance(message, SearchCounts):
                    counts = message
                    continue
                found.append(message)
                if message.is_shrunk and message.finding.kind in GRAVE:
                    break
        except SearchEndedError as error:
            counts.cut(f"{NOT_ENDED} An operation had not come back: it was in {error}.")
        except Exception as error:
            return [], Ended(error=_failure(error))
    return [*found, counts], Ended()


def in_processes(tasks: Sequence[Task], seconds: float) -> Iterator[Message]:
    """Search in forked processes, which know every class and every patch of this one. Ends with the last of them."""
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

    That it dies, fills its memory or keeps silent is no finding yet: the machine may have done that. What it was
    playing is played again, alone in a fresh process.
    """

    def __init__(self, number: int, task: Task, deadline: float, patience: float) -> None:
        """patience: seconds of silence after which it is asked."""
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
        """What it sends."""
        return self._copy.messages

    @property
    def is_silent(self) -> bool:
        """True when it has not been heard of for long: it hangs, or the machine gives it no time."""
        return monotonic() - self._heard_at > self._patience and not self.messages.is_ready(0)

    @property
    def newest(self) -> Message:
        """Its newest counts."""
        return self._number, self._before.plus(self._counts)

    def received(self) -> Iterator[Message]:
        """Yield the messages that are there."""
        self._heard_at = monotonic()
        for message in self.messages.received():
            if isinstance(message, Ended):
                if message.error is not None:
                    raise message.error
                if message.why_lost:
                    yield from self._begin_anew(message.why_lost)
                else:
                    self.stop()
                return
            if isinstance(message, SearchCounts):
                self._counts = message
                yield self.newest
            elif message.finding.rule != "MemoryError" or self._is_confirmed(message.case):
                yield self._number, message
            else:
                yield from self._begin_anew("its memory was full")
                return
        if self.messages.is_at_end:
            yield from self._lost()

    def asked(self) -> Iterator[Message]:
        """Yield what the workload of a process that does not answer comes to by itself."""
        self._heard_at = monotonic()
        if (found := self._judged_alone()) is not None:
            yield self._number, Found(*found, False)
            self.stop()

    def _lost(self) -> Iterator[Message]:
        """Yield why the process has ended, or has closed its pipe, without a word."""
        self._copy.process.join(1)
        code = self._copy.process.exitcode
        found = self._judged_alone()
        if found is None and -(code or 0) not in FROM_OUTSIDE and (case := self._noted()) is not None:
            message = f"the process of a searcher ends ({exit_of(code)}), and not by the last workload alone"
            found = Finding("liveness", message, LOST, ends_process=True), case
        if found is not None:
            yield self._number, Found(*found, False)
            self.stop()
        else:
            yield from self._begin_anew("its process was ended")

    def _begin_anew(self, what: str) -> Iterator[Message]:
        """Go on with random workloads in another process, unless this has happened too often."""
        self.stop()
        self._counts.remarks.append(f"One searcher was lost, by no fault of its last workload: {what}.")
        self._before = self._before.plus(self._counts)
        self._counts = SearchCounts(is_cut=self._num_lives >= MAX_LIVES)
        yield self.newest
        if self._num_lives < MAX_LIVES and monotonic() < self._deadline:
            self._begin(replace(self._task, small=(), seed=self._task.seed + _NEXT_SEED * self._num_lives))

    def left_open(self) -> Message:
        """Return the counts of a process that has not come to its end when the search has."""
        self._counts.cut(NOT_ENDED)
        return self.newest

    def _is_confirmed(self, case: Case) -> bool:
        found = judged_alone(case, self._task.judgement, self._deadline + AFTER_S)
        return found is not None and found[0].rule == "MemoryError"

    def _judged_alone(self) -> tuple[Finding, Case] | None:
        """Play the last workload that the process noted."""
        case = self._noted()
        return None if case is None else judged_alone(case, self._task.judgement, self._deadline + AFTER_S)

    def _noted(self) -> Case | None:
        try:
            packed_scope, workload = pickle.loads(self._copy.board.kept)
            return Case(pickle.loads(packed_scope), workload)
        except Exception:  # nothing was noted, or it is just being written
            return None

    def stop(self) -> None:
        """End the process. Twice is harmless."""
        if self.is_open:
            self.is_open = False
            self._copy.end()


def _work(task: Task, seconds: float, sender: Sender, board: Board) -> None:
    """Search in this process, send what is found, and then that the search has ended."""
    task.judgement.notes.append(_Notes(board, sender).keep)
    ended = Ended()
    with operations_end(), suppress(OSError):  # nobody listens any more, or a part has closed the pipe
        try:
            _send_all(search(task, monotonic() + seconds), sender)
        except MemoryError:  # the searcher's own: what parts raise is a finding
            ended = Ended("its memory was full")
        except Exception as error:
            ended = Ended(error=_failure(error))
        except BaseException as error:
            ended = Ended(f"it was ended by {type(error).__name__}")
        sender.send(ended)


def _failure(error: Exception) -> Exception:
    """Return what `find` raises for a searcher that failed: what cannot be searched, or a fault of the finder's own."""
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
        """Write a workload down before it is played; its scope, which is large, is packed once.

        A process whose pipe the workload before has closed ends here, and leaves that one behind.
        """
        if self._sender.is_closed:
            os._exit(0)
        if case.scope is not self._scope:
            self._scope, self._packed_scope = case.scope, pickle.dumps(case.scope)
        self._board.keep(pickle.dumps((self._packed_scope, case.workload)))
