"""find(seconds=): wall-clock seconds, and at most AFTER_S more, with a clock that these tests control."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from functools import partial
from itertools import islice
from math import inf
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from finder.endings import ending
from finder.test_find import TINY
from labengine.driven.process import SILENCE_S, DrivenEngine, EngineLostError
from labengine.finder import shrinking, workers
from labengine.finder.engines import player as engine_player
from labengine.finder.engines import search as engine_search
from labengine.finder.engines.scopes import nano_scopes
from labengine.finder.engines.search import find_in_engine
from labengine.finder.find import GRAVE, find
from labengine.finder.judgement import Case, Judgement
from labengine.finder.limits import AFTER_S
from labengine.finder.report import SearchReport
from labengine.finder.search import Found, SearchCounts, Task, search
from labengine.finder.suspects import suspects_of
from labengine.isolation import alone, limits
from labengine.isolation.alone import called_alone
from labengine.isolation.board import NoAnswer
from labengine.isolation.channel import Sender

SECONDS = (0.5, 6.0, 60.0, 3600.0)


class Clock:
    """A clock that only these tests advance."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def tasks(number: int) -> list[Task]:
    return [Task(Judgement(suspects_of("labengine", "labengine"), GRAVE), TINY, TINY, seed) for seed in range(number)]


class Hanging:
    """A silent process. Its id belongs to no process."""

    exitcode, pid = None, 2**30

    def __init__(self, target: object, work: object, sender: Sender, *others: object) -> None:
        self._end = os.dup(sender._descriptor)

    def kill(self) -> None:
        """Close its end of the pipe."""
        os.close(self._end)

    def join(self) -> None:
        """Do nothing."""


@pytest.fixture
def hanging(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Make searchers silent, and workloads played alone use all their time; return their deadlines."""
    deadlines: list[float] = []

    def judged_alone(case: Case, judgement: Judgement, deadline: float) -> None:
        deadlines.append(deadline)
        clock.now = max(clock.now, deadline)

    def wait(receivers: object, timeout: float) -> list[Any]:
        clock.wait(timeout)
        return []

    monkeypatch.setattr(workers, "monotonic", clock)
    monkeypatch.setattr(workers, "wait", wait)
    monkeypatch.setattr(alone, "forked", Hanging)
    monkeypatch.setattr(workers, "judged_alone", judged_alone)
    monkeypatch.setattr(workers._Searcher, "_noted", lambda self: Case(TINY[0], ()))
    return deadlines


@pytest.mark.parametrize("seconds", SECONDS)
@pytest.mark.parametrize("num_searchers", [1, 2, 16])
def test_searchers_that_hang_end_with_the_search(
    seconds: float, num_searchers: int, clock: Clock, hanging: list[float]
) -> None:
    started = clock.now
    messages = list(workers.in_processes(tasks(num_searchers), seconds))
    assert clock.now - started <= seconds + AFTER_S
    assert hanging, "they are asked before the search has ended"
    assert {number for number, counts in messages if counts.is_cut} == set(range(num_searchers))


def test_a_workload_alone_ends_at_its_deadline(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def monotonic() -> float:
        clock.wait(1.0)
        return clock.now

    monkeypatch.setattr(alone, "monotonic", monotonic)
    found = called_alone(lambda board: Event().wait(), clock.now + 3)
    assert isinstance(found, NoAnswer) and found.why == "late" and clock.now <= 1000 + 4


class MovesTheClock:
    """A part's method that advances the clock, and sleeps."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds

    def __call__(self) -> None:
        self._clock.wait(self._seconds)
        Event().wait()


def test_in_this_process_an_operation_that_does_not_come_back_ends_with_the_search(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "monotonic", clock)
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=clock))
    parts = ending(MovesTheClock(clock, 6.0 + AFTER_S + 0.1))
    report = find(parts, scopes=TINY, kinds=GRAVE, workers=0, seconds=6.0, show_progress=False)
    assert isinstance(report, SearchReport) and report.is_cut
    [remark] = report.remarks
    assert remark.startswith(f"{workers.NOT_ENDED} One of its operations")
    assert "MovesTheClock.__call__ (test_seconds.py:" in remark


class Waiting(Executor):
    """A pool whose calls never end."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        return Future()


@pytest.mark.parametrize("seconds", SECONDS)
def test_a_pool_is_waited_for_no_longer(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    def as_completed(futures: object, timeout: float) -> Iterator[Future[Any]]:
        waited.append(timeout)
        raise TimeoutError
        yield

    monkeypatch.setattr(workers, "as_completed", as_completed)
    messages = list(workers.in_executor(Waiting(), tasks(2), seconds))
    assert waited == [seconds + AFTER_S]
    assert [(number, counts.is_cut) for number, counts in messages] == [(0, True), (1, True)]


def test_shrinking_is_part_of_the_seconds(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (search.__globals__, vars(shrinking)):
        monkeypatch.setitem(module, "monotonic", clock)
    found = found_by(lambda: clock.wait(1.0), clock.now + 6.0)
    assert [one.is_shrunk for one in found] == [False, True], "what is found is known before it is shrunk"
    assert clock.now <= 1000 + 6.0 + 2.0, "each workload takes a second here"


def test_a_slow_machine_shrinks_as_far(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrinking, "monotonic", clock)
    fast, slow = (found_by(partial(clock.wait, seconds), inf) for seconds in (0.0, 1000.0))
    assert fast == slow and len(fast[0].case.workload) > len(fast[1].case.workload)
    monkeypatch.setattr(shrinking, "SHRINKING_TRIES", 1)
    assert len(found_by(partial(clock.wait, 0.0), inf)[1].case.workload) > len(fast[1].case.workload)


def found_by(wait: Callable[[], None], deadline: float) -> list[Found]:
    """Return the finding, unshrunk and shrunk, of a part that waits, and fails, at each hit of random workloads."""

    def fails() -> None:
        wait()
        raise RuntimeError("at a hit")

    task = Task(Judgement(suspects_of(ending(fails), "labengine"), GRAVE), (), TINY, 0, max_workloads=20)
    return [*islice((one for one in search(task, deadline) if isinstance(one, Found)), 2)]


def test_a_finding_that_is_not_shrunk_in_time_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = __import__("importlib").import_module("labengine.finder.find")
    found = next(one for one in search(task_that_fails(), inf) if isinstance(one, Found))

    def messages(*_: object) -> Iterator[workers.Message]:
        yield 0, found
        yield 0, SearchCounts(is_cut=True)

    monkeypatch.setattr(module, "_messages", messages)
    one: Any = find("labengine", show_progress=False)
    assert one.message == "RuntimeError: at a hit"


def task_that_fails() -> Task:
    def fails() -> None:
        raise RuntimeError("at a hit")

    return Task(Judgement(suspects_of(ending(fails), "labengine"), GRAVE), TINY, TINY, 0)


# -- on another engine ---------------------------------------------------------------------------------------------


class Silent:
    """An engine's process that uses all its time, and does not answer."""

    engine, source = "nano-vllm stub", ""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def send(self, workload: object) -> None:
        """Take a workload."""

    def receive(self, seconds: float = SILENCE_S) -> dict[str, Any]:
        self._clock.wait(seconds)
        raise EngineLostError(f"its process was silent for {seconds:.0f} seconds", is_silent=True)

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("seconds", SECONDS)
def test_an_engine_that_does_not_answer_ends_with_the_search(
    seconds: float, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_search, "monotonic", clock)
    monkeypatch.setattr(engine_player, "monotonic", clock)

    def start(_: DrivenEngine) -> Silent:
        return Silent(clock)

    started = clock.now
    scopes = nano_scopes()
    found = find_in_engine("nano-vllm", "python", seconds=seconds, scopes=scopes, start=start, max_findings=99)
    assert clock.now - started <= seconds + engine_search.SHRINKING_S + AFTER_S
    assert found.is_cut or found


@pytest.fixture
def slow_engine(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Any]:
    """Return a maker of engines that take `seconds` for each answer, and count wrongly."""
    monkeypatch.setattr(engine_search, "monotonic", clock)
    monkeypatch.setattr(engine_player, "monotonic", clock)

    class Slow(Silent):
        seconds = 1.0

        def receive(self, seconds: float = SILENCE_S) -> dict[str, Any]:
            if seconds < self.seconds:
                return super().receive(seconds)
            clock.wait(self.seconds)
            error = ["Symptom", "block 1 has ref_count 1, and 0 hold it", "", "ref_count"]
            return {"messages": [], "states": [], "num_done": 99, "num_steps": 1, "left": None, "error": error}

    def maker(seconds: float) -> Any:
        Slow.seconds = seconds
        return lambda _: Slow(clock)

    return maker


@pytest.mark.parametrize("seconds", SECONDS[:2])
def test_shrinking_on_an_engine_has_its_own_share(
    seconds: float, clock: Clock, slow_engine: Callable[[float], Any]
) -> None:
    started = clock.now
    found = find_in_engine("nano-vllm", "python", seconds=seconds, start=slow_engine(0.4), max_findings=99)
    assert found.findings, "one that is not shrunk in time is not lost"
    assert clock.now - started <= seconds + engine_search.SHRINKING_S + AFTER_S
