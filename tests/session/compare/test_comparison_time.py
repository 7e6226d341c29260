"""A comparison in time: earlier steps, breakpoints of both sides, rewinds of both engines, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import labengine
from labengine import events as ev
from labengine.config import ConfigError
from labengine.lab import Lab
from labengine.scenarios import bug
from labengine.session.compare.comparison import Comparison

PROMPT = list(range(100, 114))
SMALL: dict[str, Any] = {"num_blocks": 12, "block_size": 4}


@pytest.fixture
def pair() -> Iterator[Comparison]:
    with labengine.compare("nano-vllm", "nano-vllm+243", **SMALL) as comparison:
        for _ in range(2):
            comparison.add(token_ids=PROMPT, max_tokens=6)
        yield comparison


def steps(comparison: Comparison) -> list[int]:
    return [snapshot.step for snapshot in comparison.snapshots]


def labs(comparison: Comparison) -> tuple[Lab, Lab]:
    assert isinstance(comparison.left, Lab) and isinstance(comparison.right, Lab)
    return comparison.left, comparison.right


# -- looking at an earlier step ----------------------------------------------------------------------------------------


def test_goto_back_and_forward_look_at_both_sides_and_move_no_engine(pair: Comparison) -> None:
    for _ in range(3):
        pair.step()
    before = pair.snapshots
    look = pair.goto(1)
    ends = tuple(timeline.step_moments(1)[1] for timeline in pair.timelines)
    assert pair.moments == ends == (look.left.moment, look.right.moment)
    assert look.left.step == look.right.step == 1
    assert "nano-vllm: step 1 of 3" in look.text and "8 of 12 blocks used" in look.left.text
    assert "nano-vllm+243: step 1 of 3" in repr(look) and "5 of 12 blocks used" in look.right.text
    assert pair.forward().left.step == 2 and pair.forward(7).right.step == 3 and pair.moments is None
    assert "before step 1 of 3" in pair.back(3).text and pair.forward().left.step == 1
    assert pair.snapshots == before
    pair.step()
    assert pair.moments is None and pair.back().left.step == 3, "who is at the newest moment goes back from there"


def test_steps_that_nobody_recorded_are_refused_and_the_view_stays(pair: Comparison) -> None:
    with pytest.raises(ConfigError, match=r"comparison.step\(\)"):
        pair.back()
    pair.step()
    pair.step()
    pair.goto(1)
    stood = pair.moments
    for call in (lambda: pair.goto(3), lambda: pair.goto(-1), lambda: pair.back(2), lambda: pair.back(0)):
        with pytest.raises(ConfigError):
            call()
    assert pair.moments == stood


def test_a_side_that_took_fewer_steps_is_shown_at_its_end() -> None:
    scenario = bug("nano-vllm-71")
    with labengine.compare(*(column.all_parts for column in scenario.columns), num_blocks=16, block_size=4) as pair:
        pair.add(token_ids=range(4), max_tokens=3)
        pair.step()
        with pytest.raises(AssertionError):
            pair.step()
        look = pair.goto(2)
        assert (look.left.step, look.right.step) == (1, 2) and look.left.moment == pair.timelines[0].end


def test_recordings_can_be_looked_at_as_well(pair: Comparison, tmp_path: Any) -> None:
    pair.run()
    for lab, name in zip(labs(pair), "ab", strict=True):
        lab.save(tmp_path / name)
    with labengine.compare(labengine.open(tmp_path / "a"), labengine.open(tmp_path / "b")) as traces:
        assert traces.goto(1).text.count("step 1 of 6") == 2
        traces.selection = ("block", 0)
        assert traces.why().question == pair.why().question
        for call in (lambda: traces.rewind(1), lambda: traces.break_on("BlockFreed")):
            with pytest.raises(ConfigError, match="recordings"):
                call()


# -- chosen, and asked -------------------------------------------------------------------------------------------------


def test_what_is_selected_is_selected_on_both_sides(pair: Comparison) -> None:
    pair.step()
    assert pair.selection is None
    pair.selection = ("block", 3)
    assert pair.selection is not None and pair.selection.id == 3
    assert [lab.selection for lab in labs(pair)] == [pair.selection] * 2
    with pytest.raises(ValueError, match="blok"):
        pair.selection = ("blok", 4)
    assert [lab.selection for lab in labs(pair)] == [pair.selection] * 2
    pair.selection = None
    assert [lab.selection for lab in labs(pair)] == [None, None]


def test_why_explains_the_first_difference_and_sends_other_questions_to_a_side(pair: Comparison) -> None:
    assert "They do not differ" in pair.why().answer
    pair.step()
    why = pair.why()
    assert "nano-vllm and nano-vllm+243 differ" in why.question and "MergePolicy" in why.answer
    assert [link.side for link in why.links] == [0, 1]
    with pytest.raises(ConfigError, match=r"comparison.left.why\(block=3\) or comparison.right.why\(block=3\)"):
        pair.why(block=3)


# -- breakpoints -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked", [("BlockMerged",), (ev.BlockMerged,), (lambda event: isinstance(event, ev.BlockMerged),)]
)
def test_a_breakpoint_of_both_stops_the_run_of_both(pair: Comparison, asked: tuple[Any, ...]) -> None:
    breakpoint = pair.break_on(*asked)
    assert pair.breakpoints == (breakpoint,) and [len(lab.breakpoints) for lab in labs(pair)] == [1, 1]
    pair.run()
    assert steps(pair) == [1, 1] and pair.stopped_at[0] is None and pair.stopped_at[1] is not None
    assert breakpoint.num_hits[0] == 0 and breakpoint.num_hits[1] > 0 and "on both sides" in repr(breakpoint)
    breakpoint.close()
    breakpoint.close()
    assert not breakpoint.is_open and pair.breakpoints == () == labs(pair)[0].breakpoints == labs(pair)[1].breakpoints
    pair.run()
    assert pair.stopped_at == (None, None) and steps(pair) == [6, 6]


def test_fields_alone_a_violation_and_a_with_block(pair: Comparison) -> None:
    with pair.break_on(request_id=1, position=15) as first, pair.break_on("violation") as second:
        assert (first.number, second.number) == (1, 2)
        pair.run()
        assert steps(pair) == [2, 2] and all(pair.stopped_at)
    assert not pair.breakpoints


def test_what_one_side_cannot_wait_for_neither_does() -> None:
    pair = labengine.compare(Lab("simulated", **SMALL), Lab("simulated", check=False, **SMALL))
    with pair:
        for kind, error in (("violation", ConfigError), ("BlokMerged", ConfigError)):
            with pytest.raises(error):
                pair.break_on(kind)
        with pytest.raises(TypeError, match="blok_id"):
            pair.break_on("BlockFreed", blok_id=3)
        assert not pair.breakpoints and not any(lab.breakpoints for lab in labs(pair))


# -- back with both engines --------------------------------------------------------------------------------------------


def test_both_engines_go_back_and_forward_again(pair: Comparison) -> None:
    for _ in range(3):
        pair.step()
    third, recorded = pair.snapshots, [list(timeline.events()) for timeline in pair.timelines]
    pair.rewind(1)
    assert steps(pair) == [1, 1] and pair.first_difference() is not None and pair.moments is None
    assert pair.aligned_at == pair.last_boundary == (pair.timelines[0].end, pair.timelines[1].end)
    pair.rewind(3)
    assert pair.snapshots == third
    assert [list(timeline.events()) for timeline in pair.timelines] == recorded
    pair.rewind(0)
    pair.run()
    assert steps(pair) == [6, 6]


@pytest.mark.parametrize("step", [4, -1, 1.5, True, "1"])
def test_a_step_that_was_not_taken_is_refused_and_nothing_changes(pair: Comparison, step: Any) -> None:
    for _ in range(3):
        pair.step()
    before, generations = pair.snapshots, [timeline.generation for timeline in pair.timelines]
    with pytest.raises(ConfigError, match="between 0 and 3"):
        pair.rewind(step)
    assert pair.snapshots == before and [timeline.generation for timeline in pair.timelines] == generations


def test_the_follow_up_can_be_asked_for_again_after_a_rewind() -> None:
    with bug("nano-vllm-219").compare() as pair:
        opened = steps(pair)[0]
        pair.follow_up()
        end, requests = pair.snapshots, [list(s.requests) for s in pair.snapshots]
        pair.rewind(opened)
        assert pair.has_follow_up and steps(pair) == [opened, opened]
        pair.follow_up()
        assert pair.snapshots == end and not pair.has_follow_up
        for step in range(steps(pair)[0] + 1):
            pair.rewind(step)
            if pair.has_follow_up:
                pair.follow_up()
            assert pair.snapshots == end and [list(s.requests) for s in pair.snapshots] == requests
        pair.rewind(opened)
        pair.rewind(end[0].step)
        assert not pair.has_follow_up and pair.snapshots == end
        pair.rewind(0)
        pair.add(token_ids=PROMPT, max_tokens=1)
        with pytest.raises(ConfigError, match=f"after step {opened}"):
            pair.follow_up()


def test_a_rewind_that_cannot_be_done_on_one_side_is_done_on_neither(tmp_path: Any) -> None:
    sides = Lab("simulated", **SMALL), Lab("simulated", external=tmp_path, **SMALL)
    with labengine.compare(*sides) as pair:
        pair.add(token_ids=PROMPT, max_tokens=3)
        pair.run()
        before = pair.snapshots
        with pytest.raises(ConfigError, match="external tier"):
            pair.rewind(1)
        assert pair.snapshots == before


def test_a_fork_is_one_sides(pair: Comparison) -> None:
    with pytest.raises(ConfigError, match=r"comparison.left.fork\(1, edition='vllm'\)"):
        pair.fork(1, edition="vllm")


# -- led another way by itself -----------------------------------------------------------------------------------------


def ways_on(pair: Comparison) -> list[Callable[[], object]]:
    return [
        pair.run,
        pair.start,
        pair.next_phase,
        lambda: pair.add(token_ids=PROMPT, max_tokens=1),
        lambda: pair.abort(0),
    ]


@pytest.mark.parametrize(
    ("lead", "stood"),
    [(lambda lab: lab.step(), [3, 2]), (lambda lab: lab.rewind(1), [1, 2])],
    ids=["stepped", "rewound"],
)
def test_from_unequal_steps_nothing_goes_on_but_the_one_that_is_behind(
    pair: Comparison, lead: Callable[[Lab], object], stood: list[int]
) -> None:
    pair.step()
    pair.step()
    lead(labs(pair)[0])
    for go_on in ways_on(pair):
        with pytest.raises(ConfigError, match=rf"after step {stood[0]}, the right side after step {stood[1]}"):
            go_on()
    assert steps(pair) == stood and not pair.is_running
    pair.step()
    assert steps(pair) == [max(stood)] * 2
    pair.run()
    assert steps(pair) == [6, 6]


def test_a_story_does_not_go_on_from_unequal_steps() -> None:
    with bug("nano-vllm-219").compare() as pair:
        labs(pair)[0].rewind(0)
        with pytest.raises(ConfigError, match="after step 0, the right side after step 1"):
            pair.follow_up()
        assert pair.has_follow_up
        pair.rewind(1)
        pair.follow_up()


@pytest.mark.parametrize(
    "lead", [Lab.reset, lambda lab: lab.add(token_ids=[1, 2, 3], max_tokens=1)], ids=["reset", "added"]
)
def test_with_other_requests_nothing_goes_on_until_both_begin_anew(
    pair: Comparison, lead: Callable[[Lab], object]
) -> None:
    pair.step()
    lead(labs(pair)[1])
    before = pair.snapshots
    for go_on in (pair.step, *ways_on(pair)):
        with pytest.raises(ConfigError, match="no longer have the same requests"):
            go_on()
    assert pair.snapshots == before
    pair.reset()
    pair.add(token_ids=PROMPT, max_tokens=2)
    pair.run()
    assert steps(pair) == [2, 2]


def test_the_same_number_of_other_requests_is_noticed(pair: Comparison) -> None:
    left = labs(pair)[0]
    left.reset()
    for _ in range(2):
        left.add(token_ids=PROMPT, max_tokens=5)
    with pytest.raises(ConfigError, match="max_tokens 5 on the left, 6 on the right"):
        pair.step()
