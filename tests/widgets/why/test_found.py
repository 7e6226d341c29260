"""Why?, where an override contradicts its event: both are described, and the class that decided is named."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import pytest

from labengine import Lab, Parts
from labengine.core.block import Block
from labengine.core.block_pool import BlockPool
from labengine.events import BlockAllocated, BlockEvicted, BlockTouched, Event, EvictReason, ViolationFound
from labengine_widgets.why import answers_along

EQUAL = list(range(1, 10))


class WrongTouch(BlockPool):
    def touch(self, block_ids: Sequence[int]) -> None:
        for block_id in block_ids:
            self.blocks[block_id].ref_count += 1


@pytest.fixture(scope="module")
def lab() -> Lab:
    """Block 0 was touched, and is still in the free queue."""
    lab = Lab("simulated", num_blocks=8, block_size=4, parts=Parts(block_pool=WrongTouch))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            lab.add(token_ids=EQUAL, max_tokens=6)
            lab.step()
        lab.abort(0)
        lab.add(token_ids=EQUAL, max_tokens=6)
        lab.abort(1)
        lab.add(token_ids=EQUAL, max_tokens=6)
        lab.step()
    return lab


def lie(lab: Lab) -> ViolationFound:
    """The first contradiction between an event and the core."""
    assert lab.timeline is not None
    return next(one for one in lab.timeline.of_kind(ViolationFound) if one.rule == "said")


def test_an_answer_about_the_block_has_what_the_events_say_and_what_the_core_is(lab: Lab) -> None:
    found = lie(lab)
    (block_id,) = found.block_ids
    why = lab.why(block=block_id)
    assert "core's state" in why.answer and found.message in why.answer
    assert next(link.event_number for link in why.links if "(said" in link.sentence) == found.first_event


def test_the_class_that_decided_is_named_and_nothing_is_claimed_of_the_original(lab: Lab) -> None:
    found = lie(lab)
    assert found.first_event is not None and lab.timeline is not None
    assert isinstance(lab.timeline.events()[found.first_event], BlockTouched)
    link = next(link for link in lab.why(block=found.block_ids[0]).links if link.event_number == found.first_event)
    assert link.sentence.startswith("decided by WrongTouch.touch: ")
    assert link.reason.startswith("WrongTouch overrides BlockPool.touch ")


class NeverForgets(BlockPool):
    def evict(self, block: Block, reason: EvictReason = "reused") -> None:
        """Leave the block in the map."""


class EvictsAsBefore(BlockPool):
    def evict(self, block: Block, reason: EvictReason = "reused") -> None:
        super().evict(block, reason)


class ForgetsAsBefore(BlockPool):
    def forget(self, blocks: Sequence[Block], reason: EvictReason) -> None:
        super().forget(blocks, reason)


@pytest.mark.parametrize(
    ("pool", "kind", "sentence"),
    [
        (NeverForgets, BlockAllocated, "decided by NeverForgets.evict: "),
        (EvictsAsBefore, BlockAllocated, "decided by EvictsAsBefore.evict: "),
        (EvictsAsBefore, BlockEvicted, "decided by EvictsAsBefore.evict: "),
        (ForgetsAsBefore, BlockEvicted, "ForgetsAsBefore.forget reports: "),
        (BlockPool, BlockEvicted, "#"),
    ],
)
def test_only_a_method_that_emits_events_of_the_kind_reports_them(
    pool: type[BlockPool], kind: type[Event], sentence: str
) -> None:
    with Lab("simulated", num_blocks=4, block_size=4, parts=Parts(block_pool=pool), check=False) as lab:
        for first in (1, 101):
            lab.add(token_ids=range(first, first + 12), max_tokens=1)
            lab.step()
        assert lab.timeline is not None
        number = [type(event) for event in lab.timeline.events()].index(kind)
        link = next(link for link in lab.why(event=number).links if link.event_number == number)
        assert link.sentence.startswith(sentence)


def test_an_answer_about_the_event_has_it_too_and_one_before_it_does_not(lab: Lab) -> None:
    found = lie(lab)
    assert found.first_event is not None
    assert found.message in lab.why(event=found.first_event).answer
    lab.moment = found.first_event
    assert found.message not in lab.why(block=found.block_ids[0]).answer
    lab.moment = None


def test_the_cause_of_a_violation_is_what_the_override_decided(lab: Lab) -> None:
    found = lie(lab)
    assert lab.timeline is not None
    why = lab.why(event=lab.timeline.events().index(found))
    assert f"Because of event {found.first_event}: decided by WrongTouch.touch: #" in why.answer


def test_a_page_without_python_carries_it_along(lab: Lab) -> None:
    found = lie(lab)
    carried = answers_along(lab.timeline, lab.view_source().seams())  # type: ignore[arg-type]
    about = {"kind": "event", "id": found.first_event, "about": ""}
    (answer,) = [one["answer"]["answer"] for one in carried if one["subject"] == about]
    assert found.message in answer
