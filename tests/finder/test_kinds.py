"""Parts that go wrong only with forks, beams, drafts, states, priorities or pictures: found, named, and exported."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from finder import wrong_kinds as wrong
from labengine.core.editions import edition
from labengine.core.parts import Parts
from labengine.finder import shrinking
from labengine.finder.counterexample import Counterexample
from labengine.finder.find import find
from labengine.finder.judgement import GRAVE
from labengine.finder.kind_scopes import kind_scopes, priority_scopes
from labengine.finder.operations import Abort, Add, Branch, TakeStep
from labengine.finder.report import SearchReport
from labengine.finder.sandbox import Sandbox
from labengine.finder.shrinking import shortened
from labengine.finder.suspects import suspects_of

SMALL = {scope.name: scope for scope in (*kind_scopes()[1][0], *priority_scopes()[0])}
SETTINGS: dict[str, Any] = {"workers": 0, "seconds": 600, "show_progress": False}
SWEEP = pytest.mark.sweep
FOUND = [
    (wrong.WritesSharedTails, "several answers", "write"),
    (wrong.CopiesAfterTheWrite, "several answers", "read"),
    (wrong.KeepsTheReference, "several answers", "ref_count"),
    (wrong.CopiesTheFirstBlock, "several answers", "read"),
    (wrong.SharesTheSampledToken, "several answers", "window"),
    (wrong.KeepsTheBlocksOfTheBeam, "beams", "said"),
    (wrong.KeepsTheTokensOfTheBeam, "beams", "read"),
    (wrong.CountsRejectedDrafts, "drafts", "progress"),
    (wrong.AcceptsOneMore, "drafts", "read"),
    (wrong.RegistersDrafts, "drafts", "write"),
    (wrong.KeepsDraftsWhenPreempted, "drafts in a tight pool", "IndexError"),
    (wrong.KeepsJudgedDrafts, "drafts", "said"),
    (wrong.GoesOnInAnEmptyBlock, "states", "read"),
    (wrong.RegistersOneTokenEarly, "states in chunks", "named"),
    (wrong.HitsStatesOfThisStep, "states", "write"),
    (wrong.EndsChunksAnywhere, "states in chunks", "named"),
    (wrong.DropsTheRunningState, "states", "read"),
    (wrong.ForgetsPictures, "pictures", "named"),
    (wrong.ForgetsPlaces, "pictures", "scope"),
    (wrong.HashesTheLengthOfNames, "pictures", "named"),
    (wrong.HashesThePictureOnce, "pictures", "scope"),
    (wrong.HashesPicturesInTheFirstBlock, "pictures", "named"),
]
"""Each with the scope in which it goes wrong, and the broken rule or the exception."""
TAKEN_HOME = (
    wrong.WritesSharedTails,
    wrong.KeepsTheTokensOfTheBeam,
    wrong.AcceptsOneMore,
    wrong.GoesOnInAnEmptyBlock,
    wrong.ForgetsPictures,
)
"""Those for which a test is generated at every change; for the others, only in the sweep."""


@cache
def found(part: type, scope: str) -> Counterexample:
    """Edition vllm trusts hashes; labengine compares the prefixes behind them."""
    against = "vllm" if scope == "pictures" or part is wrong.HitsStatesOfThisStep else "labengine"
    one = find(part, against, scopes=[SMALL[scope]], kinds=GRAVE, max_workloads=0, **SETTINGS)
    assert isinstance(one, Counterexample), one
    return one


@pytest.mark.parametrize(("part", "scope", "rule"), FOUND, ids=lambda one: getattr(one, "__name__", None))
def test_a_wrong_part_is_found_without_a_workload(part: type, scope: str, rule: str) -> None:
    one = found(part, scope)
    assert (one.rule, one.is_shortest) == (rule, True)
    assert part.__name__ in one.headline and len(one.operations) <= 7


def test_what_is_to_be_copied_is_a_part_of_the_state() -> None:
    """A request that is aborted before its first step changes nothing else here."""
    scope = replace(SMALL["states in chunks"], only=(Add((5, 6, 7), 1),), max_requests=3, max_operations=7)
    one = find(wrong.ForgetsCopiesOfOthers, "vllm", scopes=[scope], kinds=GRAVE, max_workloads=0, **SETTINGS)
    assert isinstance(one, Counterexample) and one.rule == "read", one


@pytest.mark.parametrize(
    ("part", "scope"),
    [(part, scope) if part in TAKEN_HOME else pytest.param(part, scope, marks=SWEEP) for part, scope, _ in FOUND],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_what_is_found_is_taken_home_as_a_test(part: type, scope: str) -> None:
    """to_test() sees it red with the part, and green without."""
    text = found(part, scope).to_test()
    assert part.__name__ in text
    wanted = {"several answers": "n=2", "beams": "beams=2", "drafts": "speculation=", "pictures": "images="}
    assert wanted.get(scope, "") in text


@pytest.mark.parametrize(
    "part",
    [
        wrong.PreemptsTheMostUrgent,
        *(
            pytest.param(part, marks=SWEEP)
            for part in (wrong.TakesLargerForMoreUrgent, wrong.ForgetsTheArrival, wrong.ForgetsThePriority)
        ),
    ],
)
def test_another_order_of_priorities_is_a_decision_that_differs(part: type) -> None:
    """No rule decides which request is more urgent, only the edition."""
    reference, scopes = edition("labengine", "priority"), priority_scopes()[0]
    one = find(part, reference, scopes=scopes, kinds=["differs"], max_workloads=400, **SETTINGS)
    assert isinstance(one, Counterexample) and part.__name__ in one.headline


def test_a_request_that_is_lost_is_found_by_its_end() -> None:
    parts = Parts(waiting_queue=wrong.LosesTheUrgent)
    one = find(parts, scopes=priority_scopes()[0], kinds=GRAVE, max_workloads=0, **SETTINGS)
    assert isinstance(one, Counterexample) and "priority=-1" in "".join(one.operations)


@pytest.mark.parametrize("is_complete", [False, pytest.param(True, marks=SWEEP)])
@pytest.mark.parametrize("name", SMALL)
def test_production_does_nothing_wrong(name: str, is_complete: bool) -> None:
    parts, scope = edition("labengine", "priority") if "priorities" in name else "labengine", SMALL[name]
    if not is_complete:
        scope = replace(scope, max_operations=3, only=scope.adds[::7] if len(scope.adds) > 8 else scope.adds)
    report = find(parts, scopes=[scope], kinds=GRAVE, max_workloads=0, **SETTINGS)
    assert isinstance(report, SearchReport), report
    assert report.exhausted == (name,) and report.num_states > 30


@pytest.mark.parametrize("name", SMALL)
def test_each_operation_is_undone_completely(name: str) -> None:
    """Otherwise each state would be rebuilt from the beginning."""
    scope = SMALL[name]
    sandbox = Sandbox(scope.config, edition("labengine", "priority"), proposer=scope.proposer)
    assert sandbox.run((scope.adds[-1], TakeStep(), TakeStep(), scope.adds[0]))[0] is None
    for operation in (scope.adds[-1], TakeStep(), Abort(0)):
        mark = sandbox.mark()
        assert sandbox.do(operation) is None
        assert sandbox.undo(mark), operation


def test_kinds_in_which_an_override_decides_are_searched_first() -> None:
    first, others = kind_scopes(suspects_of(wrong.AcceptsOneMore, "labengine").overridden)
    assert {scope.name.split()[0] for scope in first[0]} == {"drafts"} and "drafts" not in str(others[0][0].name)
    assert kind_scopes(())[0] == ((), ())


@pytest.mark.sweep
@pytest.mark.parametrize("part", [part for part, _, _ in FOUND], ids=lambda part: part.__name__)
def test_a_wrong_part_is_found_in_the_usual_scopes(part: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrinking, "SHRINKING_TRIES", 0)  # how short it gets is not asked
    against = "vllm" if part.__name__.startswith(("Forgets", "Hashes", "Hits")) else "labengine"
    one = find(part, against, seconds=600, show_progress=False)
    assert isinstance(one, Counterexample)


def test_later_operations_follow_the_numbers_of_several_answers() -> None:
    answers, alone = Add((1,), n=3), Add((1,))
    workload = (alone, answers, Abort(2), Branch(3), Abort(4))
    assert shortened(workload, 0, 1) == (answers, Abort(1), Branch(2), Abort(3))
    assert shortened(workload, 1, 2) == (alone,)
