"""Two recordings caption by caption: what belongs together, where they first differ, growth, length."""

from __future__ import annotations

import random
import sys
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest

import labengine
from labengine import events as ev
from labengine.config import ConfigError
from labengine.record.timeline import Timeline
from labengine.session.compare.comparison import Comparison
from labengine_widgets.compare.alignment import Pair, about, aligned, first_differing, same
from labengine_widgets.compare.captions import PairCaptions
from labengine_widgets.compare.configuration import shift_of
from labengine_widgets.compare.first_difference import distinct_sentences, find_first_difference
from labengine_widgets.words.event_runs import MAX_SINGLES
from labengine_widgets.words.mentions import Sentence
from recordings import timeline_of
from widgets.story_219 import begin, block_hash, merging_step, overwriting_step

LEFT, RIGHT = begin() + overwriting_step(), begin() + merging_step()


def pairs(left: list[ev.Event], right: list[ev.Event], shift: int = 0) -> list[Pair]:
    """Aligned, with what must hold of any alignment."""
    found = list(aligned(left, right, shift=shift))
    ends = [(0, 0), *(pair.ends for pair in found)]
    assert all(a <= b and c <= d and (a, c) != (b, d) for (a, c), (b, d) in pairwise(ends))
    assert ends[-1] == (len(left), len(right))
    for (a, c), pair in zip(ends, found, strict=False):
        assert not pair.left or pair.left == tuple(left[a : pair.ends[0]])[-len(pair.left) :]
        assert not pair.right or pair.right == tuple(right[c : pair.ends[1]])[-len(pair.right) :]
        assert pair.differs == (first_differing(left[a : pair.ends[0]], right[c : pair.ends[1]], shift) is not None)
    return found


# -- what belongs together ---------------------------------------------------------------------------------------------


def test_the_same_recording_twice_never_differs() -> None:
    assert not any(pair.differs for pair in pairs(RIGHT, list(RIGHT)))


def test_overwriting_is_beside_merging_block_by_block() -> None:
    differing = [pair for pair in pairs(LEFT, RIGHT) if pair.differs]
    assert [[type(event).__name__ for event in pair.left] for pair in differing] == [["BlockCached"]] * 3
    assert [[type(event).__name__ for event in pair.right] for pair in differing] == [["BlockMerged", "BlockFreed"]] * 3
    assert [pair.left[0].index for pair in differing] == [pair.right[0].index for pair in differing] == [0, 1, 2]  # type: ignore[attr-defined]
    assert {pair.phase for pair in differing} == {"update"}


def promised(num_blocks: int) -> list[ev.Event]:
    """A step in which the first full blocks of a long prompt join the map."""
    cached = [ev.BlockCached(i, 0, 0, i, block_hash(i), (i,), True) for i in range(num_blocks)]
    allocated = [ev.BlockAllocated(i, 0, 0, i) for i in range(8)]
    started = [*begin()[:1], ev.RequestAdded(0, tuple(range(33)), 3), ev.StepStarted(1)]
    return [*started, *allocated, ev.ForwardRan(1, 8), *cached, ev.TokensComputed(0, 8), ev.StepEnded(1)]


@pytest.mark.parametrize(("num_left", "num_right"), [(8, 2), (2, 8), (8, 1), (8, 6), (5, 4)])
def test_rows_of_full_blocks_differ_where_one_is_longer(num_left: int, num_right: int) -> None:
    left, right = promised(num_left), promised(num_right)
    [pair] = [pair for pair in pairs(left, right) if pair.differs]
    found = find_first_difference(timeline_of(left), timeline_of(right))
    first = left.index(ev.BlockCached(0, 0, 0, 0, block_hash(0), (0,), True)) + min(num_left, num_right)
    assert found and (found[0].left, found[0].right) == ((first, None) if num_left > num_right else (None, first))
    if min(num_left, num_right) <= MAX_SINGLES:  # the blocks that are equal are pairs of their own
        assert len(pair.left) + len(pair.right) == abs(num_left - num_right)


def test_what_only_one_side_does_is_alone() -> None:
    extra = [ev.ViolationFound("read", "so", (0,), (1,), 1, None)]
    found = pairs([*LEFT[:-1], *extra, LEFT[-1]], LEFT)
    alone = [pair for pair in found if pair.differs]
    assert len(alone) == 1 and alone[0].left == tuple(extra) and alone[0].right == ()
    [mirrored] = [pair for pair in pairs(LEFT, [*LEFT[:-1], *extra, LEFT[-1]]) if pair.differs]
    assert mirrored.right == tuple(extra)


def test_that_a_decision_differs_from_productions_is_no_difference_of_two_runs() -> None:
    """Wherever it stands: before, inside or behind a run that shares a caption, and behind the last step."""
    differs = ev.DecisionDiffered("Mine.skips", "Scheduler.skips", "True", "False", 0)
    for place in range(1, len(RIGHT) + 1):
        with_it = [*RIGHT[:place], differs, *RIGHT[place:]]
        found = list(aligned(RIGHT, with_it))
        assert not any(pair.differs for pair in found) and found[-1].ends == (len(RIGHT), len(with_it))
        beside = [pair for pair in aligned(LEFT, with_it) if pair.differs]
        assert [pair.right for pair in beside] == [pair.right for pair in aligned(LEFT, RIGHT) if pair.differs]
        plain, moved = (find_first_difference(timeline_of(LEFT), timeline_of(right)) for right in (RIGHT, with_it))
        assert plain is not None and moved is not None and plain[0].right is not None and moved[0].right is not None
        assert moved[0].left == plain[0].left and with_it[moved[0].right] == RIGHT[plain[0].right]


def test_steps_are_matched_by_their_numbers() -> None:
    step_2 = [ev.StepStarted(2), ev.StepEnded(2)]
    step_3 = [ev.StepStarted(3), ev.StepEnded(3)]
    found = pairs([*LEFT, *step_2, *step_3], [*LEFT, *step_3])
    assert [pair.left for pair in found if pair.differs] == [(step_2[0],), (step_2[1],)]
    assert not found[-1].differs and found[-1].left == (step_3[1],)


def test_a_step_taken_back_is_an_attempt_of_its_own() -> None:
    broken = [ev.StepStarted(1), ev.StepRolledBack(1, "KeyboardInterrupt")]
    found = pairs(begin() + broken + merging_step(), begin() + broken + overwriting_step())
    assert sum(pair.differs for pair in found) == 3
    alone = pairs(begin() + broken + merging_step(), RIGHT)
    assert [type(event).__name__ for pair in alone for event in pair.left][-1] == "StepEnded"


def test_editions_by_name_alone_are_no_difference() -> None:
    one, other = (ev.EngineStarted(12, (("full", 4, None),), name) for name in "ab")
    assert same(one, other) and not same(one, ev.EngineStarted(13, one.groups, "a"))
    assert pairs([one], [other])[0].differs is False


def test_a_violation_is_the_same_whatever_method_its_message_names() -> None:
    one, other = (ev.ViolationFound("held", f"... ({name}.touch)", (1,), (3,), 2, 7) for name in ("BlockPool", "Mine"))
    assert same(one, other)
    assert not same(one, ev.ViolationFound("held", one.message, (1,), (4,), 2, 7))


def test_subjects() -> None:
    cached = ev.BlockCached(4, 1, 0, 2, block_hash(2), (4,))
    merged = ev.BlockMerged(4, 0, 1, 0, 2, 2)
    assert about([cached]) == about([merged]) != about([ev.BlockCached(4, 0, 0, 2, block_hash(2), (4,))])


# -- in words ----------------------------------------------------------------------------------------------------------


def test_words_are_said_once_where_the_sides_agree_and_twice_where_not() -> None:
    compared = PairCaptions(timeline_of(LEFT), timeline_of(RIGHT))
    compared.grow()
    for caption in compared.captions:
        assert bool(caption.sentence) != (caption.left is not None or caption.right is not None)
        if caption.pair.differs:
            assert caption.left != caption.right
    assert compared.captions[0].sentence.startswith("The engine starts")
    assert compared.captions[-1].left != compared.captions[-1].right and not compared.captions[-1].pair.differs


def test_hashes_that_differ_are_said_in_digits() -> None:
    left, right = ([ev.BlocksSaved(0, ((0, 0, 1, bytes([key]) * 32),))] for key in (1, 2))
    words = distinct_sentences((Sentence("#1 is copied."), Sentence("#1 is copied.")), left, right)
    assert str(words[0]) == "#1 is copied. (transfers ((0, 0, 1, 01010101…)))" and "02020202…" in str(words[1])


def test_the_parting_is_the_first_event_that_differs() -> None:
    left, right = timeline_of(LEFT), timeline_of(RIGHT)
    compared = PairCaptions(left, right)
    compared.grow()
    found = find_first_difference(left, right)
    assert compared.difference is not None and found is not None and found[0] == compared.difference
    event, other = LEFT[compared.difference.left or 0], RIGHT[compared.difference.right or 0]
    assert isinstance(event, ev.BlockCached) and isinstance(other, ev.BlockMerged)
    assert compared.captions[compared.difference.number].pair.differs
    assert find_first_difference(left, timeline_of(LEFT)) is None


# -- growing -----------------------------------------------------------------------------------------------------------


def test_growing_event_by_event_comes_to_the_same() -> None:
    left, right = Timeline(), Timeline()
    at_once = PairCaptions(timeline_of(LEFT), timeline_of(RIGHT))
    at_once.grow()
    growing = PairCaptions(left, right)
    for i in range(max(len(LEFT), len(RIGHT))):
        for timeline, events in ((left, LEFT), (right, RIGHT)):
            if i < len(events):
                timeline.record(events[i])
        growing.grow()
    assert [caption.row() for caption in growing.captions] == [caption.row() for caption in at_once.captions]


def test_what_is_settled_is_never_described_again() -> None:
    with labengine.compare("nano-vllm", "nano-vllm+243", num_blocks=12, block_size=4) as comparison:
        compared = PairCaptions(*comparison.timelines)
        assert compared.grow(comparison.aligned_at, comparison.last_boundary) is not None
        for _ in range(2):
            comparison.add(token_ids=range(14), max_tokens=5)
        known = 0
        for _ in range(5):
            comparison.step()
            first = compared.grow(comparison.aligned_at, comparison.last_boundary)
            assert first == known or known == 0
            known = compared.num_settled
            assert known == compared.end
            assert compared.grow(comparison.aligned_at, comparison.last_boundary) is None
        comparison.reset()
        assert compared.grow(comparison.aligned_at, comparison.last_boundary) == 0 and compared.difference is None


def test_old_captions_go_with_their_events() -> None:
    labs = [
        labengine.Lab("simulated", edition=name, num_blocks=64, block_size=4, record=200)
        for name in ("vllm", "labengine")
    ]
    with labengine.compare(*labs) as comparison:
        compared = PairCaptions(*comparison.timelines)
        comparison.add(token_ids=range(9), max_tokens=120)
        while any(comparison.step()):
            compared.grow(comparison.aligned_at, comparison.last_boundary)
        assert compared.first > 0 and len(compared.captions) < 400
        for timeline, moment in zip(comparison.timelines, compared.captions[0].pair.ends, strict=True):
            assert moment >= timeline.num_dropped


# -- at random, and at length ------------------------------------------------------------------------------------------


def play(comparison: Comparison, seed: int) -> None:
    """A random workload, the same on both sides; what cannot run is not asked for."""
    dice = random.Random(seed)
    for _ in range(dice.randint(3, 9)):
        for _ in range(dice.randint(0, 3)):
            prompt = [dice.randint(0, 2)] * dice.randint(1, 13)
            settings: dict[str, Any] = {"max_tokens": dice.randint(1, 6)}
            try:
                comparison.add(token_ids=prompt, **settings)
            except ConfigError:
                continue
        comparison.step()


@pytest.mark.parametrize("seed", range(40))
def test_random_workloads_are_aligned_completely(seed: int) -> None:
    editions = random.Random(seed).choices(
        ["nano-vllm", "nano-vllm+243", "vllm", "labengine", "nano-vllm-2025-07"], k=2
    )
    with labengine.compare(*editions, num_blocks=10, block_size=4, max_num_batched_tokens=16) as comparison:
        play(comparison, seed)
        left, right = comparison.timelines
        found = pairs(list(left.events()), list(right.events()), shift_of(left, right))
        compared = PairCaptions(left, right)
        compared.grow()
        assert [caption.pair.ends for caption in compared.captions] == [pair.ends for pair in found]
        assert all(caption.sentence or caption.left or caption.right for caption in compared.captions)


def calls_an_event(num_requests: int) -> tuple[float, int]:
    """Align a recording of requests, eight at a time; return its function calls per event, and its number of events."""
    num_calls = 0

    def count(frame: FrameType, kind: str, argument: object) -> None:
        nonlocal num_calls
        num_calls += kind in ("call", "c_call")

    settings = {"num_blocks": 100, "block_size": 4, "max_num_seqs": 8, "check": False}
    with labengine.compare("nano-vllm", "labengine", **settings) as comparison:
        for number in range(num_requests):
            comparison.add(token_ids=range(8 * number, 8 * number + 12), max_tokens=8)
        comparison.run()
        compared = PairCaptions(*comparison.timelines)
        sys.setprofile(count)
        try:
            compared.grow(comparison.aligned_at, comparison.last_boundary)
        finally:
            sys.setprofile(None)
        num_events = sum(timeline.end for timeline in comparison.timelines)
        return num_calls / num_events, num_events


def test_an_event_of_a_long_recording_takes_no_more_calls_to_align() -> None:
    calls_short, num_short = calls_an_event(4)
    calls_long, num_long = calls_an_event(24)
    assert num_long > 5 * num_short
    assert calls_long < 2 * calls_short, "where they grow with the length, they are 5 times as many and more"
