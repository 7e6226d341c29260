"""Searchers in processes of their own: all cores, limits of time and memory, and a part that never returns."""

from __future__ import annotations

import multiprocessing
import pickle
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, as_completed
from contextlib import suppress
from mmap import mmap
from multiprocessing.connection import Connection, wait
from typing import Any

from labengine.finder.judgement import GRAVE, Case
from labengine.finder.limits import operations_end
from labengine.finder.sandbox import Finding
from labengine.finder.search import Found, SearchCounts, Task, search

MEMORY_BYTES = 2**29
"""Memory that a searcher may take beyond what the process has already."""
SILENCE_S = 15.0
"""Seconds without a message after which a searcher counts as lost in its workload."""
_MESSAGE_S = 0.2
_NOTE_BYTES = 1 << 16

Message = tuple[int, Found | SearchCounts]
"""A searcher's number, and what it has found or counted."""


def can_fork() -> bool:
    """Return True where a process can be copied with all its classes: on Linux."""
    return sys.platform.startswith("linux")


def in_this_process(tasks: Sequence[Task], seconds: float) -> Iterator[Message]:
    """Search task after task in slices, without processes or threads."""
    deadline = time.monotonic() + seconds
    with operations_end():
        searches = {number: search(task, deadline) for number, task in enumerate(tasks)}
        while searches:
            for number, one in list(searches.items()):
                for message in one:
                    yield number, message
                    if isinstance(message, SearchCounts):
                        break
                else:
                    del searches[number]


def in_executor(executor: Executor, tasks: Sequence[Task], seconds: float) -> Iterator[Message]:
    """Search in a pool of the caller's: anything with the interface of concurrent.futures."""
    futures = {executor.submit(_searched, task, seconds): number for number, task in enumerate(tasks)}
    try:
        for future in as_completed(futures):
            for message in future.result():
                yield futures[future], message
    finally:
        for future in futures:
            future.cancel()


def _searched(task: Task, seconds: float) -> list[Found | SearchCounts]:
    """Return the findings of a search, up to the first grave one, and its last counts."""
    counts, found = SearchCounts(), []
    for message in search(task, time.monotonic() + seconds):
        if isinstance(message, SearchCounts):
            counts = message
            continue
        found.append(message)
        if message.finding.kind in GRAVE:
            break
    return [*found, counts]


def in_processes(tasks: Sequence[Task], seconds: float) -> Iterator[Message]:
    """Search in forked processes, which know every class and every patch of this one. Ends with the last of them."""
    searchers = [_Searcher(number, task, seconds) for number, task in enumerate(tasks)]
    try:
        while open_ones := [one for one in searchers if one.is_open]:
            ready = wait([one.connection for one in open_ones], timeout=0.5)
            for one in open_ones:
                if one.connection in ready:
                    yield from one.received()
                elif one.is_silent:
                    yield from one.lost()
    finally:
        for one in searchers:
            one.stop()


class _Searcher:
    """One process, seen from outside."""

    def __init__(self, number: int, task: Task, seconds: float) -> None:
        self.is_open = True
        self._number = number
        self._note = mmap(-1, _NOTE_BYTES)
        self._heard_at = time.monotonic()
        self.connection, end = multiprocessing.Pipe(duplex=False)
        context: Any = multiprocessing.get_context("fork")
        self._process = context.Process(target=_work, args=(task, seconds, end, self._note), daemon=True)
        with warnings.catch_warnings():  # Python 3.12 warns of threads; the copy touches none of their locks
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process.start()
        end.close()

    @property
    def is_silent(self) -> bool:
        """True when it has not been heard of for long: it is in code that never returns to Python."""
        return time.monotonic() - self._heard_at > SILENCE_S

    def received(self) -> Iterator[Message]:
        """Yield the messages that are there; where the process has ended, what it was doing if it was killed."""
        self._heard_at = time.monotonic()
        try:
            while self.connection.poll():
                message = self.connection.recv()
                if isinstance(message, Exception):
                    raise message
                yield self._number, message
        except EOFError:
            self._process.join(1)
            if self._process.exitcode:
                yield from self._left(f"the process was ended by signal {-self._process.exitcode}")
            self.stop()

    def lost(self) -> Iterator[Message]:
        """Yield the workload of a process that does not answer, and end it."""
        yield from self._left(f"it had not come back after {SILENCE_S:g} s")
        self.stop()

    def _left(self, reason: str) -> Iterator[Message]:
        self._note.seek(0)
        with suppress(Exception):
            case: Case = pickle.loads(self._note.read())
            yield self._number, Found(Finding("liveness", f"a step never returns: {reason}", "endless"), case, False)

    def stop(self) -> None:
        """End the process. Twice is harmless."""
        if self.is_open:
            self.is_open = False
            self._process.kill()
            self._process.join()
            self.connection.close()


def _work(task: Task, seconds: float, end: Connection, note: mmap) -> None:
    """Search in this process, and send what is found."""
    _limit_memory()

    def keep(case: Case) -> None:
        packed = pickle.dumps(case)
        if len(packed) <= _NOTE_BYTES:
            note.seek(0)
            note.write(packed)

    sent_at = 0.0
    task.judgement.notes.append(keep)
    message: Found | SearchCounts | None = None
    with operations_end(), suppress(BrokenPipeError, KeyboardInterrupt):
        try:
            for message in search(task, time.monotonic() + seconds):
                if not isinstance(message, SearchCounts) or time.monotonic() - sent_at > _MESSAGE_S:
                    sent_at = time.monotonic()
                    end.send(message)
            end.send(message or SearchCounts())
        except Exception as error:  # the searcher's own: what parts raise is a finding
            end.send(RuntimeError(f"a searcher failed: {error!r}"))
    end.close()


def _limit_memory() -> None:
    import resource

    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, resource.RLIM_INFINITY))
