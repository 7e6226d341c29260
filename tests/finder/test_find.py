"""find(): wrong parts are found, shrunk, and named; right ones are searched completely. Counted, not timed."""

from __future__ import annotations

import _thread
import multiprocessing
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from importlib import import_module
from itertools import islice
from typing import Any

import pytest

from finder.wrong_parts import (
    AsksForMore,
    EverySecondBlock,
    HidesState,
    Loops,
    NeverAdmits,
    NeverShares,
    NoAliveCheck,
    RaisesOnTouch,
)
from labengine.config import ConfigError
from labengine.core.block_pool import BlockPool
from labengine.core.editions import LABENGINE, NANO_VLLM_243
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.core.waiting_queue import PriorityQueue
from labengine.course.branch import FAST_PREFILL
from labengine.finder.counterexample import Counterexample
from labengine.finder.find import GRAVE, INTERRUPTED, find
from labengine.finder.judgement import Judgement
from labengine.finder.kind_scopes import priority_scopes
from labengine.finder.random_search import RandomSearch
from labengine.finder.report import SearchReport
from labengine.finder.scopes import large_scopes, small_scopes
from labengine.finder.suspects import base_of, suspects_of
from labengine.finder.workers import Message

ONE_SCOPE = small_scopes()[:1]
TINY = (replace(ONE_SCOPE[0], max_tokens=(1,)),)


@cache
def found(parts: object, **settings: Any) -> Counterexample:
    """Return the result of a search; the same search runs only once per process."""
    counterexample = find(parts, **{"workers": 0, "show_progress": False, "seconds": 600, **settings})
    assert isinstance(counterexample, Counterexample)
    return counterexample


def searched(parts: object, **settings: Any) -> SearchReport:
    """Search small scopes to their end, with time for a slow machine."""
    settings |= {"kinds": GRAVE, "max_workloads": 0, "workers": 0}
    report = find(parts, seconds=600, show_progress=False, **settings)
    assert isinstance(report, SearchReport)
    return report


@pytest.mark.parametrize(
    ("cls", "kind", "length"),
    [
        (NoAliveCheck, "rule", 3),
        (EverySecondBlock, "rule", 3),
        (RaisesOnTouch, "raises", 4),
        (NeverAdmits, "liveness", 2),
        (HidesState, "raises", 5),
    ],
)
def test_the_shortest_workload_on_which_a_part_goes_wrong(cls: type, kind: str, length: int) -> None:
    one = found(cls, scopes=ONE_SCOPE, kinds=GRAVE, max_workloads=0)
    assert (one.kind, len(one.operations), one.is_shortest) == (kind, length, True)
    assert one and cls.__name__ in one.headline and str(length) in one.headline
    with one.lab() as lab:
        unfinished = [one for one in lab.snapshot().requests.values() if one.status != "finished"]
        assert lab.violations or unfinished


class ForgetsTheUrgent(PriorityQueue):
    """Loses a request that is more urgent than 0."""

    def add_request(self, request: Request) -> None:
        if request.priority >= 0:
            super().add_request(request)


def test_parts_that_know_priorities_are_searched_with_some() -> None:
    one = found(Parts(waiting_queue=ForgetsTheUrgent), scopes=priority_scopes()[0], kinds=GRAVE, max_workloads=0)
    (added,) = one.operations
    assert one.kind == "liveness" and "priority=-1" in added and "priority=-1" in one.to_code()
    assert "request 0 is waiting" in one.message
    assert suspects_of(Parts(waiting_queue=ForgetsTheUrgent), "labengine").know_priorities
    assert not suspects_of("vllm", "labengine").know_priorities


def test_a_part_that_never_returns_is_found_with_its_place() -> None:
    one = found(Loops, scopes=TINY, kinds=GRAVE, max_workloads=0)
    assert (one.kind, one.rule) == ("liveness", "endless")
    assert "Loops.touch (" in one.message and "wrong_parts.py" in one.message


def test_a_part_that_keeps_more_than_the_reference_is_worse() -> None:
    one = found(NeverShares, kinds=("worse",), max_workloads=200)
    assert one.kind == "worse" and "instead of" in one.message
    with one.compare() as comparison:
        assert comparison.left.snapshot().step == comparison.right.snapshot().step


def test_what_is_never_registered_is_also_counted_as_hits_that_are_lost() -> None:
    """Without the kind `rule` a run continues after the omission."""
    one = found(EverySecondBlock, kinds=("worse",), max_workloads=200)
    assert one.kind == "worse" and "tokens in the cache instead of" in one.message


def test_an_edition_differs_from_another() -> None:
    one = found("vllm", against="nano-vllm", kinds=("differs",), max_workloads=200)
    assert "; with nano-vllm, " in one.message


def test_what_parts_leave_out_is_as_in_the_edition_that_they_are_held_against() -> None:
    parts = Parts(merge_policy=NoAliveCheck)
    one = found(parts, against="nano-vllm+243", scopes=ONE_SCOPE, kinds=GRAVE, max_workloads=0)
    with one.lab() as lab:
        assert lab.session.parts == parts.overriding(NANO_VLLM_243)
    assert suspects_of("vllm", parts).reference == parts.overriding(LABENGINE), "where nothing else says"


def test_production_is_searched_completely_and_nothing_is_found() -> None:
    report = searched("labengine", scopes=ONE_SCOPE)
    assert not report
    assert report.exhausted == ("two requests",)
    assert (report.num_states, report.num_distinct) == (3961, 1482)
    assert "two requests" in repr(report) and "3,961 states" in repr(report)


def test_a_part_that_refuses_requests_is_searched_with_the_others() -> None:
    report = searched(AsksForMore, scopes=TINY)
    assert report.exhausted == ("two requests",) and report.num_states > 100


def test_random_workloads_are_the_same_by_the_same_seed() -> None:
    def num_operations(seed: int) -> int:
        search = RandomSearch(large_scopes(), Judgement(suspects_of("vllm", "labengine"), GRAVE), seed)
        assert not any(islice(search.findings(), 20))
        return search.num_operations

    assert num_operations(3) == num_operations(3) != num_operations(4)


def test_what_goes_wrong_in_the_edition_itself_is_not_the_overrides_fault() -> None:
    """In nano-vLLM of July 2025 a hit may cover a whole prompt; a harmless override of it is not blamed for that."""

    class Harmless(BlockPool):
        """Overrides nothing."""

    base = "nano-vllm-2025-07"
    assert found(base, against=base, scopes=TINY, kinds=GRAVE).rule == "progress"
    parts = Parts(name="harmless", block_pool=Harmless)
    from labengine.core.editions import NANO_VLLM_2025_07, StaleMapPool

    class HarmlessPool(StaleMapPool):
        """Overrides nothing."""

    parts = Parts(name="harmless", block_pool=HarmlessPool).overriding(NANO_VLLM_2025_07)
    assert not searched(parts, scopes=TINY)


def test_parts_with_a_scheduler_and_little_else_are_made_from_our_own_edition() -> None:
    class Harmless(TokenBudgetScheduler):
        """Overrides nothing."""

    report = searched(Parts(scheduler=Harmless), scopes=TINY)
    assert not report and report.num_states > 10


@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_ends_a_search_with_a_report(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = import_module("labengine.finder.find")
    press, messages = threading.Timer(0.5, _thread.interrupt_main), module._messages

    def messages_and_a_press(*arguments: Any) -> Iterator[Message]:
        for number, message in enumerate(messages(*arguments)):
            if number == 0:  # earlier, the search has not begun on a slow machine
                press.start()
            yield message

    monkeypatch.setattr(module, "_messages", messages_and_a_press)
    report = find("labengine", kinds=GRAVE, workers=workers, show_progress=False, seconds=3600)
    assert isinstance(report, SearchReport) and INTERRUPTED in report.remarks
    assert multiprocessing.active_children() == []


def test_in_an_executor() -> None:
    with ThreadPoolExecutor(2) as pool:
        one = find(NoAliveCheck, scopes=TINY, kinds=GRAVE, workers=pool, max_workloads=20, show_progress=False)
    assert isinstance(one, Counterexample) and one.kind == "rule"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3,), "find\\(\\) takes Parts"),
        (("vlm",), "Did you mean 'vllm'"),
        ((int,), "int must be a subclass of a part"),
        ((NoAliveCheck, "vlm"), "Did you mean 'vllm'"),
    ],
)
def test_what_cannot_be_searched_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find(*arguments, show_progress=False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seconds": 0}, "seconds must be a number above 0"),
        ({"seconds": float("inf")}, "seconds must be a number above 0"),
        ({"seed": "a"}, "seed must be an integer"),
        ({"max_workloads": -1}, "max_workloads must be at least 0"),
        ({"scopes": 3}, "scopes must be a list"),
        ({"extra_keys": "lora"}, "extra_keys must be a list"),
        ({"kinds": ("wrong",)}, "kinds must be among rule"),
        ({"margin": 0}, "margin must be at least 1"),
        ({"num_blocks": 3}, "no setting 'num_blocks'"),
        ({"workers": -1}, "workers must be at least 0"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find("labengine", show_progress=False, **settings)


def test_parts_are_made_from_the_edition_that_is_nearest_to_them() -> None:
    """nano-vllm has as many of the branch's classes, but its merge policy is not late merge."""
    assert base_of(FAST_PREFILL) is NANO_VLLM_243
    assert base_of(NANO_VLLM_243) is None
