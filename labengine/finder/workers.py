"""Searchers in processes of their own: all cores, limits of time and memory, and a part that never returns."""

from __future__ import annotations

import multiprocessing
import pickle
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import replace
from mmap import mmap
from multiprocessing.connection import Connection, wait

from labengine.finder.alone import judged_alone
from labengine.finder.child import KILLED, begin_alone, exit_of, forked
from labengine.finder.judgement import GRAVE, Case
from labengine.finder.limits import operations_end
from labengine.finder.sandbox import Finding
from labengine.finder.scopes import Scope
from labengine.finder.search import Found, SearchCounts, Task, search

SILENCE_S = 15.0
"""Seconds without a message after which a searcher's workload is played alone; in a short search a quarter of it."""
GRACE_S = 0.5
"""Seconds after the end of a search in which searchers may say what they have."""
MAX_LIVES = 4
"""Processes that one searcher may use up."""
_NEXT_SEED = 1_000_003
_MESSAGE_S = 0.2
_WAIT_S = 0.25
_NOTE_BYTES = 1 << 16

Message = tuple[int, Found | SearchCounts]
"""A searcher's number, and what it has found or counted."""


class SearchEnded:
    """A searcher's last message. A process that ends without it has not searched to its end."""


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
        for future in as_completed(futures, timeout=seconds + GRACE_S):
            for message in future.result():
                yield futures[future], message
    except TimeoutError:
        remark = "A call of the executor had not come back at the end of the search."
        yield from ((number, SearchCounts(remarks=[remark])) for one, number in futures.items() if not one.done())
    finally:
        for future in futures:
            future.cancel()


def _searched(task: Task, seconds: float) -> list[Found | SearchCounts]:
    """Return the findings of a search, up to the first grave one, and its last counts."""
    counts, found = SearchCounts(), []
    with operations_end(), _failures_reported():
        for message in search(task, time.monotonic() + seconds):
            if isinstance(message, SearchCounts):
                counts = message
                continue
            found.append(message)
            if message.finding.kind in GRAVE:
                break
    return [*found, counts]


@contextmanager
def _failures_reported() -> Iterator[None]:
    """Raise RuntimeError for what is no Exception: a KeyboardInterrupt of the pool would count as the user's."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception):
            raise
        raise RuntimeError(f"a searcher failed: {error!r}") from error


def in_processes(tasks: Sequence[Task], seconds: float) -> Iterator[Message]:
    """Search in forked processes, which know every class and every patch of this one.

    Ends with the last of them, at the latest GRACE_S after `seconds` of the clock.
    """
    searchers: list[_Searcher] = []
    try:
        for number, task in enumerate(tasks):
            searchers.append(_Searcher(number, task, seconds))
        while open_ones := [one for one in searchers if one.is_open]:
            ready = wait([one.connection for one in open_ones], timeout=_WAIT_S)
            for one in open_ones:
                if one.connection in ready:
                    yield from one.received()
                elif one.is_late:
                    yield from one.abandoned()
                elif one.is_silent:
                    yield from one.asked()
    finally:
        for one in searchers:
            one.stop()


class _Searcher:
    """One process, seen from outside.

    That it dies, fills its memory or keeps silent is no finding yet: the machine may have done that. What it was
    playing is played again, alone in a fresh process. Its end is a result only where it says so itself.
    """

    def __init__(self, number: int, task: Task, seconds: float) -> None:
        self.is_open = False
        self._number, self._task = number, task
        self._deadline = time.monotonic() + seconds
        self._silence = min(SILENCE_S, seconds / 4)
        self._before, self._counts = SearchCounts(), SearchCounts()
        self._num_lives = 0
        self._begin(task)

    def _begin(self, task: Task) -> None:
        self._num_lives += 1
        self._note = mmap(-1, _NOTE_BYTES)
        self._heard_at = time.monotonic()
        self.connection, end = multiprocessing.Pipe(duplex=False)
        seconds = max(0.0, self._deadline - time.monotonic())
        self._process = forked(_work, task, seconds, end, self._note)
        end.close()
        self.is_open = True

    @property
    def is_silent(self) -> bool:
        """True when it has not been heard of for long: it hangs, or the machine gives it no time."""
        return time.monotonic() - self._heard_at > self._silence and not self.connection.poll()

    @property
    def is_late(self) -> bool:
        """True when the search is over, and it has not said so."""
        return time.monotonic() > self._deadline + GRACE_S - _WAIT_S

    def received(self) -> Iterator[Message]:
        """Yield the messages that are there."""
        self._heard_at = time.monotonic()
        try:
            while self.is_open and self.connection.poll():
                message = self.connection.recv()
                if isinstance(message, MemoryError):
                    yield from self._begin_anew("its memory was full")
                elif isinstance(message, SearchEnded):
                    self.stop()
                elif isinstance(message, Exception):
                    raise message
                elif isinstance(message, SearchCounts):
                    yield self._number, self._counted(message)
                elif message.finding.rule != "MemoryError" or self._is_confirmed(message.case):
                    yield self._number, message
                else:
                    yield from self._begin_anew("its memory was full")
        except (EOFError, OSError, pickle.UnpicklingError):  # the end, or a part has closed or written to the pipe
            yield from self._suspected()

    def asked(self) -> Iterator[Message]:
        """Yield what the workload of a process that does not answer comes to by itself."""
        if (found := self._judged_alone()) is not None:
            yield self._number, Found(*found, False)
            self.stop()
        self._heard_at = time.monotonic()

    def abandoned(self) -> Iterator[Message]:
        """End the process, and yield its counts with a remark."""
        self._counts.remarks.append("One searcher had not come to its end at the end of the search.")
        yield self._number, self._counted(self._counts)
        self.stop()

    def _suspected(self) -> Iterator[Message]:
        """Yield what the process's last workload comes to alone, or begin anew: an end by itself is no result."""
        self._process.join(1)
        how = exit_of(self._process)
        if (found := self._judged_alone()) is not None:
            yield self._number, Found(*found, False)
            self.stop()
        elif self._num_lives < MAX_LIVES or self._process.exitcode == KILLED:
            yield from self._begin_anew("its process was ended")
        elif (case := self._noted()) is not None:
            message = f"{MAX_LIVES} searchers' processes ended by themselves, this one with {how} in its last workload"
            yield self._number, Found(Finding("liveness", message, "endless"), case, False)
            self.stop()
        else:
            raise RuntimeError(f"searchers' processes end by themselves ({how}) before they have played a workload")

    def _begin_anew(self, what: str) -> Iterator[Message]:
        """Go on with random workloads in another process, unless this has happened too often."""
        self.stop()
        self._counts.remarks.append(f"One searcher was lost, by no fault of its last workload: {what}.")
        self._before = self._counted(self._counts)
        yield self._number, self._before
        self._counts = SearchCounts()
        if self._num_lives < MAX_LIVES and time.monotonic() < self._deadline:
            self._begin(replace(self._task, small=(), seed=self._task.seed + _NEXT_SEED * self._num_lives))

    def _counted(self, counts: SearchCounts) -> SearchCounts:
        self._counts = counts
        return counts.after(self._before)

    def _is_confirmed(self, case: Case) -> bool:
        found = judged_alone(case, self._task.judgement, self._deadline)
        return found is not None and found[0].rule == "MemoryError"

    def _judged_alone(self) -> tuple[Finding, Case] | None:
        """Play the last workload that the process noted."""
        case = self._noted()
        return None if case is None else judged_alone(case, self._task.judgement, self._deadline)

    def _noted(self) -> Case | None:
        """Return the last workload that the process noted."""
        self._note.seek(0)
        try:
            packed_scope, workload = pickle.loads(self._note.read())
            return Case(pickle.loads(packed_scope), workload)
        except Exception:  # nothing was noted, or it is just being written
            return None

    def stop(self) -> None:
        """End the process. Twice is harmless."""
        if self.is_open:
            self.is_open = False
            self._process.kill()
            self._process.join()
            self.connection.close()


def _work(task: Task, seconds: float, end: Connection, note: mmap) -> None:
    """Search in this process, and send what is found."""
    begin_alone()
    task.judgement.notes.append(_Notes(note).keep)
    with operations_end(), suppress(BrokenPipeError):
        try:
            _send_all(search(task, time.monotonic() + seconds), end)
            end.send(SearchEnded())
        except MemoryError:  # the searcher's own: what parts raise is a finding
            end.send(MemoryError())
        except BaseException as error:
            end.send(RuntimeError(f"a searcher failed: {error!r}"))
    end.close()


def _send_all(messages: Iterator[Found | SearchCounts], end: Connection) -> None:
    sent_at = 0.0
    message: Found | SearchCounts | None = None
    for message in messages:
        if not isinstance(message, SearchCounts) or time.monotonic() - sent_at > _MESSAGE_S:
            sent_at = time.monotonic()
            end.send(message)
    end.send(message or SearchCounts())


class _Notes:
    """The newest workload, in memory that outlives the process."""

    def __init__(self, note: mmap) -> None:
        self._note = note
        self._scope: Scope | None = None
        self._packed_scope = b""

    def keep(self, case: Case) -> None:
        """Write a workload down before it is played; its scope, which is large, is packed once."""
        if case.scope is not self._scope:
            self._scope, self._packed_scope = case.scope, pickle.dumps(case.scope)
        packed = pickle.dumps((self._packed_scope, case.workload))
        if len(packed) <= _NOTE_BYTES:
            self._note.seek(0)
            self._note.write(packed)
