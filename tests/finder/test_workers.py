"""Processes of a search: harm by a part is a finding, harm by the machine is not."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from math import inf
from typing import Any

import pytest

from finder.endings import ending
from finder.test_find import ONE_SCOPE, TINY
from finder.wrong_parts import Dies, EatsMemory, Hoards, LoopsInC, TiresOut, Waits
from labengine.finder import limits as search_limits
from labengine.finder import workers
from labengine.finder.counterexample import Counterexample
from labengine.finder.find import GRAVE, find
from labengine.finder.judged_alone import judged_alone
from labengine.finder.judgement import Case, Judgement
from labengine.finder.operations import TakeStep
from labengine.finder.report import SearchReport
from labengine.finder.search import Found, Task, search
from labengine.finder.suspects import suspects_of
from labengine.isolation import alone, looks, memory_limit
from labengine.isolation.limits import EndlessOperationError


def searched(parts: object, **settings: Any) -> Counterexample | SearchReport:
    settings = {"scopes": TINY, "kinds": GRAVE, "workers": 2, "seconds": 600, **settings}
    return find(parts, show_progress=False, **settings)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "SILENCE_S", 0.5)
    monkeypatch.setattr(alone, "COMPUTING_S", 0.5)
    monkeypatch.setattr(looks, "NUM_ASLEEP", 10)


def test_in_processes_of_their_own() -> None:
    class Untouched(EatsMemory):
        """A class that only this function knows."""

        def touch(self, block_ids: Any) -> None:
            raise RuntimeError("touched")

    one = searched(Untouched)
    assert isinstance(one, Counterexample) and one.message == "RuntimeError: touched"


def test_a_part_that_eats_memory_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit, "MEMORY_BYTES", 2**26)
    one = searched(EatsMemory)
    assert isinstance(one, Counterexample) and (one.kind, one.rule) == ("raises", "MemoryError")


@pytest.mark.parametrize(("cls", "why"), [(Hoards, "its memory was full"), (TiresOut, "an operation took too long")])
def test_what_no_single_workload_brings_about_is_none(cls: type, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit, "MEMORY_BYTES", 2**27)
    report = searched(cls, max_workloads=0)
    assert isinstance(report, SearchReport) and not report.exhausted
    [remark] = report.remarks
    assert why in remark and remark in repr(report)


@pytest.mark.parametrize("num_late", [1, 9])
def test_an_operation_that_is_late_for_a_while_is_judged_again(num_late: int) -> None:
    """Once: no finding. While a finding is shrunk: it stays as it was found."""
    late: list[None] = []

    def act() -> None:
        late.append(None)
        if len(late) <= num_late:
            raise EndlessOperationError("it had not returned in time")

    task = Task(Judgement(suspects_of(ending(act), "labengine"), GRAVE), (), TINY, 0, max_workloads=40)
    found = [one for one in search(task, inf) if isinstance(one, Found)]
    assert len(late) > num_late
    assert len({one.case for one in found}) == (num_late > 1)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("cls", "rule", "reason"),
    [
        (LoopsInC, "endless", "s of processor time"),
        (Waits, "endless", "waiting for something"),
        (Dies, "exit", "ends the process (exit code 7), in Dies.touch (wrong_parts.py:"),
    ],
)
def test_a_part_that_a_process_never_comes_back_from_is_a_finding(cls: type, rule: str, reason: str) -> None:
    one = searched(cls)
    assert isinstance(one, Counterexample) and (one.kind, one.rule) == ("liveness", rule)
    assert reason in one.message and len(one.operations) <= 6


def stop_after(seconds: float, target: Any, *arguments: Any) -> None:
    """Stop this process after some processor time, or at once, and call the target."""
    signal.signal(signal.SIGPROF, lambda *_: os.kill(os.getpid(), signal.SIGSTOP))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    if not seconds:
        os.kill(os.getpid(), signal.SIGSTOP)
    target(*arguments)


def stopping(monkeypatch: pytest.MonkeyPatch, seconds: float, *, is_continued: bool = True) -> list[int]:
    """Stop each copy of this process after some processor time; return their ids.

    is_continued: they go on after a second.
    """
    stopped: list[int] = []

    def go_on(pid: int) -> None:
        while alone._state_and_seconds(pid)[0] not in "TXZ":
            time.sleep(0.02)
        stopped.append(pid)
        if is_continued:
            time.sleep(1.2)
            with suppress(ProcessLookupError):  # it has come to its end without
                os.kill(pid, signal.SIGCONT)

    def start(target: Any, *arguments: Any) -> Any:
        process = forked(stop_after, seconds, target, *arguments)
        threading.Thread(target=go_on, args=(process.pid,)).start()
        return process

    forked = alone.forked
    monkeypatch.setattr(alone, "forked", start)
    return stopped


@pytest.mark.usefixtures("impatient")
def test_a_searcher_that_gets_no_time_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = stopping(monkeypatch, 0.1)
    report = searched("labengine", max_workloads=60)
    assert isinstance(report, SearchReport) and report.exhausted == ("two requests",)
    assert len(stopped) >= 2 and report.seconds > 1 and not report.remarks


@pytest.mark.usefixtures("impatient")
def test_a_workload_that_is_played_alone_and_gets_no_time_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = stopping(monkeypatch, 0.0)
    case = Case(TINY[0], (TINY[0].adds[0], TakeStep()))
    started = time.monotonic()
    assert judged_alone(case, Judgement(suspects_of("labengine", "labengine"), GRAVE), started + 600) is None
    assert stopped and time.monotonic() - started > 1


def test_ctrl_c_while_searchers_start_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []

    def forked(*arguments: Any) -> Any:
        if started:
            raise KeyboardInterrupt
        started.append(original(*arguments))
        return started[0]

    original = alone.forked
    monkeypatch.setattr(alone, "forked", forked)
    report = searched("labengine", seconds=600)
    assert isinstance(report, SearchReport) and not report.exhausted
    [process] = started
    assert not process.is_alive()


def test_a_searcher_that_stays_stopped_ends_with_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "ENDING_S", 0.3)
    stopping(monkeypatch, 0.01, is_continued=False)  # soon: starved, it computes little in a second
    report = searched("labengine", seconds=1)
    assert isinstance(report, SearchReport)
    assert report.remarks == (workers.NOT_ENDED,)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_states_that_fill_the_memory_end_a_scope_and_not_the_search(
    num_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_limits, "TABLE_BYTES", 20_000)
    report = searched("labengine", scopes=ONE_SCOPE, workers=num_workers, max_workloads=5)
    assert isinstance(report, SearchReport) and not report.exhausted and report.num_workloads == 10
    [one] = report.unfinished
    assert one.scope == "two requests" and 50 < one.num_states < 500 and 1 <= one.depth < 10
    assert f"two requests, whose {one.num_states} states filled the memory" in repr(report)
