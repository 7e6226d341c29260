"""The stories of the compare view: the numbers in the guided sentences are the engines' own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from labengine import events as ev
from labengine.config import ConfigError
from labengine.scenarios import bug
from labengine.scenarios.scenario import Scenario
from labengine.session.compare.comparison import Comparison
from labengine_widgets.compare.captions import PairCaption
from scenarios.guided import captions
from scenarios.test_framework import Tiny


def states_at(comparison: Comparison, caption: PairCaption) -> tuple[int, int]:
    """Used blocks at a caption, left and right."""
    states = zip(comparison.timelines, caption.pair.ends, strict=True)
    left, right = (timeline.state(moment).num_used_blocks for timeline, moment in states)
    return left, right


def stops(comparison: Comparison) -> dict[int, PairCaption]:
    return {caption.stop: caption for caption in captions(comparison) if caption.stop is not None}


@pytest.fixture(scope="module", params=["simulated", "smollm2"])
def story(request: pytest.FixtureRequest) -> Iterator[Comparison]:
    """#219 to its end."""
    with bug("nano-vllm-219").compare(request.param) as comparison:
        comparison.follow_up()
        yield comparison


def test_219_after_the_step_8_and_5_and_the_peak_8_on_both_sides(story: Comparison) -> None:
    found = stops(story)
    assert states_at(story, found[1]) == states_at(story, found[3]) == (8, 8)
    assert states_at(story, found[4]) == (8, 7)
    assert states_at(story, found[5]) == (8, 5)
    for timeline, moment, lost in zip(story.timelines, found[5].pair.ends, (3, 0), strict=True):
        assert len(timeline.state(moment).snapshot().lost_blocks) == lost
        computed = [event for event in timeline.events(0, moment) if isinstance(event, ev.ForwardRan)]
        assert sum(event.num_tokens for event in computed) == 28
    sentence = story.guide[5].sentence
    assert all(words in sentence for words in ("8 blocks", "3 of them lost", "5 are in use", "28 tokens"))


def test_219_in_the_follow_up_the_same_prompt_finds_0_and_3_blocks(story: Comparison) -> None:
    hits = [[e for e in timeline.of_kind(ev.PrefixHit) if e.request_id == 3] for timeline in story.timelines]
    assert [len(hit.block_ids[0]) for [hit] in hits] == [0, 3]
    computed = [timeline.of_kind(ev.ForwardRan)[-1].num_tokens for timeline in story.timelines]
    assert computed == [14, 2]
    taken = [
        sum(event.request_id == 3 for event in timeline.of_kind(ev.BlockAllocated)) for timeline in story.timelines
    ]
    assert taken == [4, 1] and [snapshot.num_used_blocks for snapshot in story.snapshots] == [8, 5]
    filler = [e for e in story.timelines[0].of_kind(ev.BlockAllocated) if e.request_id == 2]
    assert {event.block_id for event in filler} >= {4, 5, 6} and len(filler) == 8
    assert [s.requests[0].status for s in story.snapshots] == ["running", "running"]


@pytest.mark.parametrize("column", ["nano-vllm-2025-07", "labengine"])
def test_219_any_column_has_a_follow_up(column: str) -> None:
    scenario = bug("nano-vllm-219")
    with scenario.lab(column) as lab:
        scenario.opening(lab)
        scenario.follow_up(lab)
        assert lab.timeline is not None
        assert lab.timeline.of_kind(ev.PrefixHit)[-1].num_tokens == 12


def test_71_in_the_follow_up_another_request_reads_the_hole() -> None:
    with bug("nano-vllm-71").compare() as comparison:
        comparison.follow_up()
        left, right = comparison.sides
        rules = [{v.rule for v in side.violations if 1 in v.request_ids} for side in (left, right)]  # type: ignore[attr-defined]
        assert "read" in rules[0] and not rules[1]


def test_44409_in_the_follow_up_the_next_prompt_finds_nothing_and_everything() -> None:
    with bug("vllm-44409").compare() as comparison:
        comparison.follow_up()
        assert [timeline.of_kind(ev.PrefixHit)[-1].num_tokens for timeline in comparison.timelines] == [0, 16]


def test_any_two_columns_can_be_side_by_side() -> None:
    with bug("nano-vllm-219").compare(columns=("nano-vllm-2025-07", "labengine")) as comparison:
        assert comparison.names == ("nano-vllm-2025-07", "labengine") and comparison.guide == ()
        assert [snapshot.num_used_blocks for snapshot in comparison.snapshots] == [5, 5]


def test_a_scenario_without_a_follow_up_says_so() -> None:
    scenario: Scenario = Tiny()
    with scenario.compare() as comparison, pytest.raises(ConfigError, match="tiny-1"):
        assert not comparison.has_follow_up
        scenario.follow_up(comparison.left)  # type: ignore[arg-type]
