"""Workloads that Hypothesis draws, and searchers on Ray, of which a stand-in is tried."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from hypothesis.configuration import storage_directory

from finder.test_find import ONE_SCOPE, found
from finder.wrong_parts import KeepsTokens, NoAliveCheck
from labengine import extras
from labengine.config import ConfigError
from labengine.finder import by_hypothesis
from labengine.finder.by_hypothesis import HypothesisSearch
from labengine.finder.find import GRAVE, find
from labengine.finder.judgement import Judgement
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
