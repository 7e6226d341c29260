"""The effect of an override is reported: never called, a different decision, or the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from labengine import Lab, Parts, find
from labengine import events as ev
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.kv_cache_group import GroupHit, KVCacheGroup
from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.finder.scopes import small_scopes
from labengine.session.overrides_in_use import merged, override_line, override_notes
from labengine.session.saved.trace import open as open_trace

TINY = (replace(small_scopes()[0], max_tokens=(1,)),)


class Mixed(FullAttentionGroup):
    """One method that is never called, and one that decides differently without consequences."""

    def is_worth_caching(self, request: Request, index: int) -> bool:
        return False

    def freeing_order(self, num_entries: int) -> Sequence[int]:
        return range(num_entries)


class Shortened(FullAttentionGroup):
    """Leaves the last block of each hit unused."""

    def find_hit(self, request: Request, max_tokens: int, siblings: Sequence[KVCacheGroup]) -> GroupHit:
        return [hit[:-1] for hit in super().find_hit(request, max_tokens, siblings)]


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab("simulated", num_blocks=12, block_size=4) as lab:
        for number in range(2):
            lab.add(token_ids=range(20 * number, 20 * number + 9), max_tokens=2)
        lab.run()
        yield lab


def test_a_comparison_without_a_difference_says_what_the_override_came_to(lab: Lab) -> None:
    class Unasked(FullAttentionGroup):
        def is_worth_caching(self, request: Request, index: int) -> bool:
            return False

    with lab.rerun(Unasked) as comparison:
        never = "Unasked.is_worth_caching was never called in this workload."
        assert comparison.first_difference() is None
        assert str(comparison).endswith(f"No difference so far. {never}")
        assert str(comparison.why().answer).endswith(never)
        assert comparison.right.status()["overrides"] == "Unasked.is_worth_caching (never called)"
        assert "overrides" not in comparison.left.status()


def test_a_decision_without_consequences_is_no_difference(lab: Lab) -> None:
    class Plenty(TokenBudgetScheduler):
        def longest_chunk(self) -> int:
            return 99_999

    with lab.rerun(Plenty) as comparison:
        right = comparison.right
        assert isinstance(right, Lab) and right.timeline is not None
        [found] = right.timeline.of_kind(ev.DecisionDiffered)
        assert found.method == "Plenty.longest_chunk" and found.request_id == -1
        assert comparison.first_difference() is None
        assert "Plenty.longest_chunk decided differently" in str(comparison)
        assert right.status()["overrides"] == "Plenty.longest_chunk (decides differently from production)"


def test_a_difference_is_that_of_the_runs(lab: Lab) -> None:
    """The event of the decision is on one side alone; the pairs are those of what happened."""
    with lab.rerun(Mixed) as comparison:
        difference = comparison.first_difference()
        assert difference is not None and type(difference.left) is type(difference.right) is ev.BlockFreed
        right = comparison.right
        assert isinstance(right, Lab) and right.timeline is not None
        [found] = right.timeline.of_kind(ev.DecisionDiffered)
        assert right.timeline.events(*(difference.moments[1] + n for n in (-1, 0))) == [found]
        assert "Mixed.freeing_order" in str(comparison.why())


def test_why_names_method_and_what_it_replaces() -> None:
    with Lab("simulated", num_blocks=12, block_size=4, parts=Parts(full_attention_group=Shortened)) as lab:
        for _ in range(2):
            lab.add(token_ids=range(1, 14), max_tokens=1)
            with pytest.warns(match="longest") if lab.snapshot().step else pytest.MonkeyPatch.context():
                lab.run()
        assert lab.timeline is not None
        [violation] = lab.violations
        assert violation.rule == "longest" and violation.first_event is not None
        for event in (violation.first_event, lab.timeline.events().index(lab.timeline.of_kind(ev.ViolationFound)[0])):
            text = str(lab.why(event=event))
            assert "Shortened.find_hit decide" in text and "It replaces FullAttentionGroup.find_hit" in text


def test_a_recording_keeps_the_event(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("kept") / "run.lab"
    with Lab("simulated", num_blocks=12, block_size=4, parts=Parts(full_attention_group=Mixed)) as lab:
        lab.add(token_ids=range(1, 14), max_tokens=1)
        lab.run()
        lab.save(path)
        assert lab.timeline is not None
        kept = lab.timeline.of_kind(ev.DecisionDiffered)
    assert kept and open_trace(path).timeline.of_kind(ev.DecisionDiffered) == kept


# -- the finder --------------------------------------------------------------------------------------------------------


def test_a_search_that_finds_nothing_says_what_was_never_called() -> None:
    report = find(Mixed, scopes=TINY, seconds=600, max_workloads=9, workers=0, kinds=("rule",), show_progress=False)
    assert not report
    said = str(report)
    assert "Mixed.is_worth_caching was never called" in said or "is_worth_caching decided differently" in said
    assert "Mixed.freeing_order decided differently" in said


def test_a_counterexample_names_the_first_decision_that_differs() -> None:
    found = find(Shortened, scopes=TINY, seconds=600, workers=0, kinds=("rule",), show_progress=False)
    assert found and found.rule == "longest"  # type: ignore[union-attr]
    assert "The first decision that differs: Shortened.find_hit " in str(found)


# -- words -------------------------------------------------------------------------------------------------------------


def test_each_outcome_has_its_words() -> None:
    found = {"A.x": None, "B.y": True, "C.z": False, "D.w": None}
    assert override_notes(found) == [
        "A.x and D.w were never called in this workload.",
        "B.y decided differently from production, and it made no difference.",
    ]
    line = "A.x (never called), B.y (decides differently from production), C.z, D.w (never called)"
    assert override_line(found) == line and override_notes({"C.z": False}) == []


def test_two_runs_come_to_the_most_of_either() -> None:
    one, other = {"a": None, "b": True, "c": False}, {"a": False, "b": None, "d": None}
    assert merged(one, other) == merged(other, one) == {"a": False, "b": True, "c": False, "d": None}
