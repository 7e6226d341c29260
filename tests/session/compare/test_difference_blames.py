"""Two engines that differ in state but not in events: the part that differs is blamed."""

from __future__ import annotations

import re
import warnings

import pytest

import labengine
from labengine import Lab, Parts
from labengine.core.block_pool import BlockPool
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.request import Request
from labengine.core.waiting_queue import WaitingQueue
from labengine.events import BlockCached, BlockMerged
from labengine.session.compare.difference import LATER

PROMPT = list(range(14))


class NoRemap(FullAttentionGroup):
    """Emits the events of a merge, but leaves the table unchanged (mini-sglang PR 142)."""

    def merge(self, request: Request, index: int, block_id: int, into_block_id: int) -> None:
        into = self._pool.blocks[into_block_id]
        self._pool.share(into)
        if BlockMerged in self._hooks:
            wrong_event = BlockMerged(block_id, into_block_id, request.request_id, self.index, index, into.ref_count)
            self._hooks.emit(wrong_event)
        self.release(request, [block_id], [index], "merged")


def lab_with(parts: Parts | None = None) -> Lab:
    lab = Lab("simulated", num_blocks=12, block_size=4, parts=parts)
    for _ in range(2):
        lab.add(token_ids=PROMPT, max_tokens=4)
    return lab


def test_a_merge_that_does_not_remap_is_the_difference_and_not_the_check_that_sees_it() -> None:
    comparison = labengine.compare(lab_with(Parts(full_attention_group=NoRemap)), lab_with(), names=("wrong", "right"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        comparison.step()
    difference = comparison.first_difference()
    assert difference is not None
    assert isinstance(difference.left, BlockMerged) and difference.left == difference.right
    assert difference.moments[0] == difference.moments[1] == comparison.left.violations[0].first_event
    assert difference.reasons[0].startswith("NoRemap.merge: ")
    assert "Watch" not in repr(difference)
    why = comparison.why()
    assert "The decision is KVCacheGroup.merge" in why.answer and "only the checks" in why.answer
    first = comparison.left.violations[0]
    assert f"They report for wrong the rule {first.rule} ({first.message}" in why.answer
    assert "; for right no broken rule here." in why.answer
    assert {link.event_number for link in why.links} == {difference.moments[0]}


def test_the_same_from_the_right_side() -> None:
    comparison = labengine.compare(lab_with(), lab_with(Parts(full_attention_group=NoRemap)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        comparison.step()
    difference = comparison.first_difference()
    assert difference is not None and isinstance(difference.right, BlockMerged)
    assert difference.reasons[1].startswith("NoRemap.merge: ")


def test_the_reason_for_a_prompts_tail_names_the_method_for_tails() -> None:
    """Only one side registers where the prompt of 13 tokens ends inside its second block."""
    sides = Parts(), Parts(full_attention_group=FullAttentionGroup)
    labs = [Lab("simulated", edition="vllm", parts=parts, block_size=8, hash_block_size=4) for parts in sides]
    comparison = labengine.compare(*labs)
    comparison.add(token_ids=PROMPT[:13], max_tokens=2)
    comparison.step()
    difference = comparison.first_difference()
    assert difference is not None and isinstance(difference.left, BlockCached) and not difference.left.is_full
    assert difference.reasons[0].startswith("PartialHits.register_tail: ")


class LastFirst(BlockPool):
    """A pool that puts all freed blocks of a request at the head of the queue, in reverse order."""

    def reused_first(self, block_ids: list[int]) -> list[int]:
        return block_ids[::-1]


def test_the_sentences_of_a_difference_leave_no_block_out() -> None:
    """The difference is an order, which two first blocks and the last one would not show."""
    with labengine.compare("labengine", Parts(block_pool=LastFirst), num_blocks=12, block_size=4) as both:
        both.add(token_ids=range(30), max_tokens=1, ignore_eos=True)
        both.run()
        difference = both.first_difference()
        assert difference is not None
        frees = [re.findall(r"#(\d+)", text.partition(" (finished)")[0]) for text in difference.sentences]
        assert [sorted(map(int, ids)) for ids in frees] == [list(range(8))] * 2 and frees[0] != frees[1]


class LastComeFirst(WaitingQueue):
    """A queue whose newest request is admitted first."""

    def add_request(self, request: Request) -> None:
        self.prepend_request(request)


@pytest.mark.parametrize("early", [0, 1])
def test_what_the_other_side_does_later_in_the_step_is_not_said_to_be_missing(early: int) -> None:
    parts = [Parts(), Parts()]
    parts[early] = Parts(waiting_queue=LastComeFirst)
    with labengine.compare(*parts, num_blocks=12, block_size=4) as both:
        for first in (0, 100, 200):
            both.add(token_ids=range(first, first + 5), max_tokens=1)
        both.step()
        difference = both.first_difference()
        assert difference is not None
        assert LATER in difference.sentences and "looks up its prompt" in difference.sentence
