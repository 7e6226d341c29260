"""Comparisons of engines with different settings: a setting is not a first difference, a decision is."""

from __future__ import annotations

from typing import Any

import pytest

import labengine
from labengine import GroupSpec, Lab
from labengine import events as ev
from labengine.session.compare.comparison import Comparison
from labengine_widgets.compare.captions import PairCaptions
from labengine_widgets.compare.first_difference import distinct_sentences, find_first_difference
from labengine_widgets.words.sentences import sentence

PROMPT = list(range(100, 114))


def beside(left: dict[str, Any], right: dict[str, Any]) -> Comparison:
    small: dict[str, Any] = {"num_blocks": 12, "block_size": 4}
    return labengine.compare(*(Lab("simulated", **small | sizes) for sizes in (left, right)), names=("one", "other"))


def ask(comparison: Comparison, max_tokens: int = 9) -> None:
    for first in (0, 100, 200):
        comparison.add(token_ids=range(first, first + 14), max_tokens=max_tokens)


def pair_captions(comparison: Comparison) -> PairCaptions:
    compared = PairCaptions(*comparison.timelines)
    compared.grow()
    return compared


@pytest.mark.parametrize(
    ("left", "right", "words"),
    [
        ({}, {"num_blocks": 24}, "one has 12 blocks; other has 24 blocks."),
        ({}, {"block_size": 8}, "one has blocks of 4 tokens; other has blocks of 8 tokens."),
        (
            {},
            {"block_size": 8, "num_blocks": 6},
            "one has 12 blocks, blocks of 4 tokens; other has 6 blocks, blocks of 8 tokens.",
        ),
        ({}, {"edition": "vllm"}, "other has block #0 set aside as the null block, 11 left."),
        ({}, {"groups": [GroupSpec(4, "sliding_window", 8)]}, "blocks of 4 tokens (sliding window of 8)"),
    ],
)
def test_configurations_are_no_first_difference(left: dict[str, Any], right: dict[str, Any], words: str) -> None:
    with beside(left, right) as comparison:
        assert words in comparison.configuration_difference
        assert comparison.first_difference() is None and pair_captions(comparison).difference is None
        assert words in repr(comparison) and words in comparison.why().answer
        first = pair_captions(comparison).captions[0]
        assert first.pair.differs and first.left != first.right and not first.sentence
        comparison.add(token_ids=PROMPT, max_tokens=2)
        assert comparison.first_difference() is None


def test_another_size_parts_where_the_smaller_pool_is_full() -> None:
    with beside({}, {"num_blocks": 24}) as comparison:
        ask(comparison)
        comparison.step()
        assert comparison.first_difference() is None
        comparison.run()
        found = comparison.first_difference()
        assert found is not None and isinstance(found.left, ev.BlockFreed) and found.left.reason == "preempted"
        assert found.right is None and found.step > 1 and "one has 12 blocks" in found.sentence


def test_another_block_size_parts_at_the_first_blocks() -> None:
    with beside({}, {"block_size": 8}) as comparison:
        ask(comparison)
        comparison.step()
        found, why = comparison.first_difference(), comparison.why()
        assert found is not None and found.step == 1 and isinstance(found.left, ev.BlockAllocated)
        assert found.sentences[0] != found.sentences[1]
        words = "blocks of 4 tokens; other has blocks of 8 tokens"
        assert all(words in text for text in (why.answer, found.configuration, found._repr_html_(), repr(found)))


def test_a_null_block_moves_all_ids_and_decides_nothing() -> None:
    with labengine.compare("nano-vllm", "vllm", num_blocks=12, block_size=4) as comparison:
        assert comparison.first_difference() is None
        empty = pair_captions(comparison).captions[0]
        assert (empty.left, empty.right) == (
            "The engine starts: 12 blocks, all free.",
            "The engine starts: 12 blocks, all free except #0, the null block.",
        )
        ask(comparison)
        comparison.step()
        found = comparison.first_difference()
        assert found is not None and isinstance(found.right, ev.BlockCached), "vllm hashes at allocation"
        parting, _, _ = find_first_difference(*comparison.timelines) or pytest.fail("they part")
        grown = pair_captions(comparison).difference
        assert grown == parting and not pair_captions(comparison).captions[grown.number - 1].pair.differs


def test_ids_are_renumbered_wherever_an_event_holds_them() -> None:
    with Lab("simulated", num_blocks=12, block_size=4, external="host") as lab:
        lab.generate([[*range(14)]] * 2 + [[*range(200, 240)]], max_tokens=4)
        lab.generate([[*range(14)]], max_tokens=4)
        assert lab.timeline is not None
        kinds = set()
        for event in lab.timeline.events():
            moved = ev.renumbered(event, 1)
            assert ev.renumbered(moved, -1) == event
            kinds |= {type(event)} if moved != event else set()
    assert {ev.BlockAllocated, ev.BlockCached, ev.BlockFreed, ev.SlotsWritten, ev.PrefixHit} <= kinds
    assert ev.BlocksSaved in kinds and ev.TokenSampled not in kinds


def test_equal_sentences_say_what_differs() -> None:
    head, tail = (ev.BlockFreed(3, 0, 0, 1, 0, end, "finished") for end in ("head", "tail"))
    assert distinct_sentences(("So.", "So."), (head,), (tail,)) == ("So. (queue_end head)", "So. (queue_end tail)")
    assert distinct_sentences(("So.", "Not so."), (head,), (tail,)) == ("So.", "Not so.")
    assert distinct_sentences(("So.", "So."), (head,), (ev.StepEnded(1),)) == ("So. (BlockFreed)", "So. (StepEnded)")
    assert distinct_sentences(("So.", "So."), (head,), (head, tail)) == ("So. (1 event)", "So. (2 events)")


@pytest.mark.parametrize("sizes", [{"num_blocks": 9}, {"block_size": 2}, {"edition": "vllm"}, {"edition": "nano-vllm"}])
def test_captions_that_differ_never_have_the_same_words(sizes: dict[str, Any]) -> None:
    with beside({}, sizes) as comparison:
        ask(comparison)
        comparison.run()
        compared = pair_captions(comparison)
        assert any(caption.pair.differs for caption in compared.captions)
        for caption in compared.captions:
            assert not caption.pair.differs or caption.left != caption.right
        found, why = comparison.first_difference(), comparison.why()
        assert found is not None and found.sentences[0] != found.sentences[1] and why.links


def test_the_null_block_is_described_by_the_engine_that_has_one() -> None:
    started = ev.EngineStarted(12, (("full", 4, None),), "vllm", 0)
    with Lab("simulated", edition="vllm", num_blocks=12, block_size=4) as lab:
        why = lab.why(event=0)
    assert "#0" in sentence([started], None) and "12 blocks, all free except #0" in repr(why)  # type: ignore[arg-type]
