"""Exercises of the notebook "Ask why"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from labengine.core.block import Key
from labengine.core.block_pool import BlockPool
from labengine.core.merge_policy import KeepDuplicates
from labengine.core.parts import Parts
from labengine.course.base import Exercise
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.predict_exercise import RevealedStep
from labengine.course.words import Make, course_exercise
from labengine.events import BlockAllocated, BlockEvicted, BlockFreed, BlockTouched
from labengine.lab import Lab

SKY = "Tell me why the sky is blue at noon"
SEA = "Please write a poem about the sea for me"
WHALE = "Who wrote the book about the whale and when"
LONG = "Here is a long list of words that nobody else will ever send to us"


def _one_runs_and_two_are_done(lab: Lab) -> None:
    for prompt, max_tokens in ((SKY, 9), (SEA, 1), (WHALE, 1)):
        lab.add(prompt, max_tokens=max_tokens)
        lab.step()
    lab.add(LONG, max_tokens=1)


def _first_evicted(step: RevealedStep) -> str:
    block_id = step.first(BlockEvicted).block_id
    return _key_of(step, block_id)


def _key_of(step: RevealedStep, block_id: int) -> str:
    return next(key for key, block_ids in step.before.prefix_map.items() if block_id in block_ids)


def _other_evicted(step: RevealedStep) -> str:
    return _key_of(step, step.of_kind(BlockEvicted)[1].block_id)


def _first_that_came(step: RevealedStep) -> str:
    return _key_of(step, 1)


@course_exercise("reading-a-run/evicted")
def evicted(make: Make) -> Exercise:
    """Predict: the hash that is evicted first."""
    return make(
        play=_one_runs_and_two_are_done,
        truth=_first_evicted,
        about="hash",
        mistakes=[_other_evicted, _first_that_came],
        edition="nano-vllm+243",
        num_blocks=9,
        block_size=4,
    )


def freeing_order(self: Any, num_entries: int) -> Sequence[int]:
    """Return the indices from the last to the first: the end of a chain is useless without its beginning."""
    return range(num_entries - 1, -1, -1)


def _from_the_front(self: Any, num_entries: int) -> Sequence[int]:
    return range(num_entries)


def _without_the_first(self: Any, num_entries: int) -> Sequence[int]:
    return range(num_entries - 1, 0, -1)


_from_the_front.__name__ = _without_the_first.__name__ = freeing_order.__name__


def _one_request(lab: Lab) -> None:
    lab.add(token_ids=range(9), max_tokens=1, ignore_eos=True)
    lab.run()


def _long_after_short(lab: Lab) -> None:
    lab.add(token_ids=range(14), max_tokens=1, ignore_eos=True)
    lab.run()
    lab.add(token_ids=range(100, 122), max_tokens=1, ignore_eos=True)
    lab.run()
    lab.add(token_ids=range(14), max_tokens=1, ignore_eos=True)
    lab.run()


@course_exercise("reading-a-run/freeing-order")
def freeing(make: Make) -> Exercise:
    """Fill in: the order in which a request's blocks are freed."""
    return make(
        solution=freeing_order,
        workloads=[_one_request, _long_after_short],
        num_lines=1,
        mistakes=[_from_the_front, _without_the_first],
        edition="nano-vllm+243",
        num_blocks=8,
        block_size=4,
    )


class ForgetsShared(BlockPool):
    """A pool that forgets what stands in a block when one of several requests gives it back."""

    def release(self, block_ids: Sequence[int]) -> tuple[list[int], list[int]]:
        """Drop the references, and the content of the blocks that another request still holds."""
        head, tail = super().release(block_ids)
        self.evict_cached([block_id for block_id in block_ids if self.blocks[block_id].ref_count], "reused")
        return head, tail


def _three_about_the_sky(lab: Lab) -> None:
    lab.add(f"{SKY} and not at night", max_tokens=2)
    lab.step()
    lab.add(f"{SKY} in the summer", max_tokens=6)
    lab.step(2)
    lab.add(f"{SKY} please", max_tokens=2)
    lab.step()


def _evicted_in_use(lab: Lab) -> int:
    """Return the number of the first eviction of a block that a table points to."""
    assert lab.timeline is not None
    holders = Counter[int]()
    for number, event in enumerate(lab.timeline.events(), lab.timeline.num_dropped):
        match event:
            case BlockAllocated() | BlockTouched():
                holders[event.block_id] += 1
            case BlockFreed():
                holders[event.block_id] -= 1
            case BlockEvicted() if holders[event.block_id] > 1:  # one of them is giving it back
                return number
    raise AssertionError("no block was evicted while a table pointed to it")


@course_exercise("reading-a-run/lost-entry")
def lost_entry(make: Make) -> Exercise:
    """Find the first wrong event: a shared block that is forgotten when one of its requests is done."""
    return make(
        broken=ForgetsShared,
        play=_three_about_the_sky,
        first=_evicted_in_use,
        mistakes=["PrefixHit", nth_event(BlockEvicted, 1), "BlockFreed"],
        num_blocks=12,
        block_size=4,
    )


def who_took(events: list[tuple[str, str, int]], request: str) -> list[str]:
    """Return the requests that allocated a block of this one's after it was freed."""
    freed: set[int] = set()
    found = []
    for kind, name, block_id in events:
        if name == request and kind == "freed":
            freed.add(block_id)
        elif kind == "touched":
            freed.discard(block_id)
        elif kind == "allocated" and block_id in freed:
            freed.remove(block_id)
            found += [] if name in found else [name]
    return found


def _every_taker(events: list[tuple[str, str, int]], request: str) -> list[str]:
    blocks = {block_id for kind, name, block_id in events if (kind, name) == ("freed", request)}
    takers = (name for kind, name, i in events if kind == "allocated" and i in blocks and name != request)
    return [*dict.fromkeys(takers)]


def _also_touched(events: list[tuple[str, str, int]], request: str) -> list[str]:
    freed: set[int] = set()
    found = []
    for kind, name, block_id in events:
        if name == request and kind == "freed":
            freed.add(block_id)
        elif kind in ("allocated", "touched") and block_id in freed:
            freed.remove(block_id)
            found += [] if name in found else [name]
    return found


@course_exercise("reading-a-run/who-took")
def taken(make: Make) -> Exercise:
    """Fill in: a question to the log that no button asks."""
    own = [("allocated", "A", 0), ("allocated", "A", 1), ("freed", "A", 1), ("freed", "A", 0)]
    return make(
        solution=who_took,
        cases=[
            ([*own, ("allocated", "B", 1), ("allocated", "C", 0)], "A"),
            ([*own, ("touched", "B", 0), ("allocated", "C", 1)], "A"),
            ([*own, ("allocated", "B", 1), ("freed", "B", 1), ("allocated", "C", 1)], "A"),
            ([*own, ("allocated", "B", 1), ("allocated", "B", 0)], "A"),
            ([*own, ("allocated", "A", 1), ("allocated", "B", 0)], "A"),
            ([*own, ("touched", "B", 0), ("freed", "B", 0), ("allocated", "C", 0)], "B"),
            ([("allocated", "B", 5), *own, ("allocated", "B", 1), ("touched", "C", 0), ("freed", "C", 0)], "A"),
            (own, "A"),
        ],
        num_lines=10,
        mistakes=[_every_taker, _also_touched],
    )


class CopiesFirst(BlockPool):
    """A pool that reuses blocks first of which another request holds a copy."""

    def reused_first(self, block_ids: list[int]) -> list[int]:
        """Return the blocks whose content some other block holds, and is not free: also those without content."""
        return [i for i in block_ids if all(self.is_held(key) for key in self.blocks[i].keys)]

    def is_held(self, key: Key) -> bool:
        """Return whether a block that the map has under this key is in a table."""
        return any(self.blocks[i].ref_count for i in self.prefix_map[key])


class _AllCopiesFirst(BlockPool):
    def reused_first(self, block_ids: list[int]) -> list[int]:
        return [i for i in block_ids if all(len(self.prefix_map[key]) > 1 for key in self.blocks[i].keys)]


class _AllFirst(BlockPool):
    def reused_first(self, block_ids: list[int]) -> list[int]:
        return list(block_ids)


def _chat(lab: Lab) -> None:
    """Two conversations in turns, each with its own beginning, and others in between."""
    for number in range(4):
        for first in (0, 1000):
            lab.add(token_ids=range(first, first + 9 + 4 * number), max_tokens=1, ignore_eos=True)
            lab.run()
        lab.add(token_ids=range(2000 + 100 * number, 2000 + 100 * number + 6), max_tokens=2, ignore_eos=True)
        lab.run()


def _twins_between(lab: Lab, num_tokens: int = 9, num_tokens_between: int = 17) -> None:
    """A question twice, a text that nobody repeats, the question again, another one twice ... three times."""
    for number in range(3):
        question, other, text = 0, 100 + 100 * number, 1000 + 50 * number
        for first, lengths in ((question, (2, 4)), (text, (1,)), (question, (1,)), (other, (2, 4)), (text, (1,))):
            for max_tokens in lengths:
                length = num_tokens_between if first == text else num_tokens
                lab.add(token_ids=range(first, first + length), max_tokens=max_tokens, ignore_eos=True)
            lab.run()
        lab.add(token_ids=range(other, other + num_tokens), max_tokens=1, ignore_eos=True)
        lab.run()


def _longer_twins(lab: Lab) -> None:
    _twins_between(lab, num_tokens=13, num_tokens_between=13)


@course_exercise("reading-a-run/race")
def race(make: Make) -> Exercise:
    """Make it better: which freed blocks are reused first."""
    return make(
        solution=CopiesFirst,
        workloads=[_twins_between, _longer_twins, _chat],
        score="tokens computed",
        goal=496,
        num_lines=4,
        mistakes=[_AllCopiesFirst, _AllFirst, BlockPool],
        parts=Parts(merge_policy=KeepDuplicates),
        num_blocks=10,
        block_size=4,
    )
