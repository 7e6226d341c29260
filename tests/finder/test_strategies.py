"""Workloads that Hypothesis draws, and searchers on Ray, of which a stand-in is tried."""

from __future__ import annotations

import pickle
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from itertools import islice
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis.configuration import storage_directory

from finder.test_find import ONE_SCOPE, TINY, found
from finder.wrong_parts import KeepsTokens, NoAliveCheck
from labengine import extras
from labengine.config import ConfigError
from labengine.finder import by_hypothesis, on_ray
from labengine.finder.by_hypothesis import HypothesisSearch
from labengine.finder.counterexample import Counterexample
from labengine.finder.find import GRAVE, find
from labengine.finder.judgement import Judgement
from labengine.finder.report import SearchReport
from labengine.finder.scopes import Scope, large_scopes
from labengine.finder.suspects import suspects_of

# -- Hypothesis --------------------------------------------------------------------------------------------------------


def drawn(parts: object, seed: int, scopes: tuple[Scope, ...] = ONE_SCOPE) -> HypothesisSearch:
    return HypothesisSearch(scopes, Judgement(suspects_of(parts, "labengine"), GRAVE), seed)


def test_nothing_is_left_in_the_present_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABENGINE_CACHE", str(tmp_path / "cache"))
    used: list[object] = []
    search = drawn("labengine", 1)
    search._judgement.notes.append(lambda case: used.append(storage_directory("constants").path))
    assert next(search.findings()) is None
    assert {*used} == {tmp_path / "cache" / "hypothesis" / "constants"}
    assert tmp_path not in storage_directory("constants").path.parents


def test_hypothesis_finds_and_shrinks() -> None:
    search = drawn(NoAliveCheck, 1)
    finding, case = next(one for one in islice(search.findings(), 100) if one is not None)
    assert finding.kind == "rule" and len(case.workload) <= 4
    assert len({*case.workload[:2]}) == 1, "two equal requests, and steps"


def test_the_same_seed_draws_the_same() -> None:
    def workloads(seed: int) -> list[object]:
        search = drawn("labengine", seed, large_scopes())
        cases: list[object] = []
        search._judgement.notes.append(cases.append)
        assert not any(islice(search.findings(), 2))
        return cases

    assert workloads(3) == workloads(3) != workloads(4)


def test_shrinking_ends_in_time_with_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_hypothesis, "SHRINKING_S", 0.0)
    search = drawn(NoAliveCheck, 1)
    finding, _ = next(one for one in islice(search.findings(), 100) if one is not None)
    assert finding.kind == "rule"
    assert all(one is None for one in islice(search.findings(), 5)), "a kind that was found is not looked for again"


def test_find_with_hypothesis() -> None:
    scopes = tuple(scope for scope in large_scopes() if scope.name == "a small pool, steps that end inside")
    one = found(KeepsTokens, scopes=scopes, kinds=("raises",), strategy="hypothesis", max_workloads=400)
    assert one.message == "RuntimeError: a token too many"


def test_without_hypothesis_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    sentence = r"strategy='hypothesis' needs hypothesis: pip install -e '.*\[hypothesis\]'"
    with pytest.raises(ConfigError, match=sentence):
        find("labengine", strategy="hypothesis", show_progress=False)


def test_another_strategy_is_refused() -> None:
    with pytest.raises(ConfigError, match="strategy is one of guided, hypothesis; got 'wild'"):
        find("labengine", show_progress=False, strategy="wild")


# -- Ray ---------------------------------------------------------------------------------------------------------------


class LocalRay(ModuleType):
    """A module like ray, in threads of this process; calls and answers are packed, as on a way to another machine."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.num_started = 0
        self.cancelled: list[object] = []

    def is_initialized(self) -> bool:
        return self.num_started > 0

    def init(self) -> None:
        self.num_started += 1

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 3.0}

    def remote(self, function: Callable[..., Any]) -> Any:
        def call(*arguments: Any) -> Any:
            future: Future[Any] = Future()
            packed = pickle.dumps((function, arguments))

            def run() -> None:
                sent, there = pickle.loads(packed)
                with suppress(InvalidStateError):  # it was cancelled
                    future.set_result(pickle.loads(pickle.dumps(sent(*there))))

            threading.Thread(target=run, daemon=True).start()
            return SimpleNamespace(future=lambda: future)

        return SimpleNamespace(remote=call)

    def cancel(self, task: object, *, force: bool) -> None:
        assert force
        self.cancelled.append(task)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> LocalRay:
    module = LocalRay()
    monkeypatch.setitem(sys.modules, "ray", module)
    monkeypatch.setattr(on_ray, "find_spec", lambda name: object())
    return module


def test_searchers_on_ray(ray: LocalRay) -> None:
    one = find(NoAliveCheck, scopes=TINY, kinds=GRAVE, workers="ray", max_workloads=20, show_progress=False)
    assert isinstance(one, Counterexample) and one.kind == "rule" and ray.num_started == 1
    report = find("labengine", scopes=TINY, kinds=GRAVE, workers="ray", max_workloads=5, show_progress=False)
    assert isinstance(report, SearchReport) and report.exhausted == ("two requests",)
    assert report.num_workloads == 15 and ray.num_started == 1


def test_unfinished_calls_are_cancelled(ray: LocalRay) -> None:
    with on_ray.RayExecutor() as pool:
        pool.submit(time.sleep, 5)
        pool.submit(time.sleep, 0).result()
    assert len(ray.cancelled) == 1


def test_without_ray_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_ray, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="workers='ray' needs ray: pip install ray"):
        find("labengine", workers="ray", show_progress=False)
