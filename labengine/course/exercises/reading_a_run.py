"""Exercises of the notebook "Ask why"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from labengine.core.block import Key
from labengine.core.block_pool import BlockPool
from labengine.core.merge_policy import KeepDuplicates
from labengine.core.parts import Parts
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.trial import RUN, plays
from labengine.course.words import course_exercise
from labengine.events import BlockAllocated, BlockEvicted, BlockFreed, BlockTouched
from labengine.lab import Lab

SKY = "Tell me why the sky is blue at noon"
SEA = "Please write a poem about the sea for me"
WHALE = "Who wrote the book about the whale and when"
LONG = "Here is a long list of words that nobody else will ever send to us"


course_exercise(
    "reading-a-run/evicted",
    play=plays((SKY, 9), 1, (SEA, 1), 1, (WHALE, 1), 1, (LONG, 1)),
    truth=lambda step: step.entry_of(step.first(BlockEvicted).block_id),
    about="hash",
    mistakes=[lambda step: step.entry_of(step.of_kind(BlockEvicted)[1].block_id), lambda step: step.entry_of(1)],
    edition="nano-vllm+243",
    num_blocks=9,
)


def freeing_order(self: Any, num_entries: int) -> Sequence[int]:
    """Return the indices from last to first: the end of a chain is useless without its beginning."""
    return range(num_entries - 1, -1, -1)


course_exercise(
    "reading-a-run/freeing-order",
    solution=freeing_order,
    workloads=[plays((range(9), 1), RUN), plays((range(14), 1), RUN, (range(100, 122), 1), RUN, (range(14), 1), RUN)],
    num_lines=1,
    mistakes=[lambda self, num_entries: range(num_entries), lambda self, num_entries: range(num_entries - 1, 0, -1)],
    edition="nano-vllm+243",
    num_blocks=8,
)


class ForgetsShared(BlockPool):
    """A pool that forgets a block's content when one of several requests gives it back."""

    def release(self, block_ids: Sequence[int]) -> tuple[list[int], list[int]]:
        """Drop the references, and forget the content of blocks that another request still holds."""
        head, tail = super().release(block_ids)
        self.evict_cached([block_id for block_id in block_ids if self.blocks[block_id].ref_count], "reused")
        return head, tail


def _evicted_in_use(lab: Lab) -> int:
    """Return the number of the first eviction of a block that is in a table."""
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


course_exercise(
    "reading-a-run/lost-entry",
    broken=ForgetsShared,
    play=plays((f"{SKY} and not at night", 2), 1, (f"{SKY} in the summer", 6), 2, (f"{SKY} please", 2), 1),
    first=_evicted_in_use,
    mistakes=["PrefixHit", nth_event(BlockEvicted, 1), "BlockFreed"],
    num_blocks=12,
)


def who_took(events: list[tuple[str, str, int]], request: str) -> list[str]:
    """Return the requests that allocated one of this request's blocks after it was freed."""
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


OWN = [("allocated", "A", 0), ("allocated", "A", 1), ("freed", "A", 1), ("freed", "A", 0)]
course_exercise(
    "reading-a-run/who-took",
    solution=who_took,
    cases=[
        ([*OWN, ("allocated", "B", 1), ("allocated", "C", 0)], "A"),
        ([*OWN, ("touched", "B", 0), ("allocated", "C", 1)], "A"),
        ([*OWN, ("allocated", "B", 1), ("freed", "B", 1), ("allocated", "C", 1)], "A"),
        ([*OWN, ("allocated", "B", 1), ("allocated", "B", 0)], "A"),
        ([*OWN, ("allocated", "A", 1), ("allocated", "B", 0)], "A"),
        ([*OWN, ("touched", "B", 0), ("freed", "B", 0), ("allocated", "C", 0)], "B"),
        ([("allocated", "B", 5), *OWN, ("allocated", "B", 1), ("touched", "C", 0), ("freed", "C", 0)], "A"),
        (OWN, "A"),
    ],
    num_lines=10,
    mistakes=[_every_taker, _also_touched],
)


class CopiesFirst(BlockPool):
    """A pool that first reuses blocks whose content another request also holds."""

    def reused_first(self, block_ids: list[int]) -> list[int]:
        """Return the blocks without content, and those whose content a block in use holds, too."""
        return [i for i in block_ids if all(self.is_held(key) for key in self.blocks[i].keys)]

    def is_held(self, key: Key) -> bool:
        """Return True if a block that the map has under this key is in a table."""
        return any(self.blocks[i].ref_count for i in self.prefix_map[key])


def _chat(lab: Lab) -> None:
    """Two alternating conversations with different beginnings, and other requests in between."""
    for number in range(4):
        for first in (0, 1000):
            lab.add(token_ids=range(first, first + 9 + 4 * number), max_tokens=1, ignore_eos=True)
            lab.run()
        lab.add(token_ids=range(2000 + 100 * number, 2000 + 100 * number + 6), max_tokens=2, ignore_eos=True)
        lab.run()


def _twins_between(lab: Lab, num_tokens: int = 9, num_tokens_between: int = 17) -> None:
    """Two questions, each sent twice at once and later once more, with texts in between; three rounds."""
    for number in range(3):
        question, other, text = 0, 100 + 100 * number, 1000 + 50 * number
        for first, lengths in ((question, (2, 4)), (text, (1,)), (question, (1,)), (other, (2, 4)), (text, (1,))):
            for max_tokens in lengths:
                length = num_tokens_between if first == text else num_tokens
                lab.add(token_ids=range(first, first + length), max_tokens=max_tokens, ignore_eos=True)
            lab.run()
        lab.add(token_ids=range(other, other + num_tokens), max_tokens=1, ignore_eos=True)
        lab.run()


course_exercise(
    "reading-a-run/race",
    solution=CopiesFirst,
    workloads=[_twins_between, partial(_twins_between, num_tokens=13, num_tokens_between=13), _chat],
    score="tokens computed",
    goal=496,
    num_lines=4,
    mistakes=[
        lambda self, block_ids: [
            i for i in block_ids if all(len(self.prefix_map[key]) > 1 for key in self.blocks[i].keys)
        ],
        lambda self, block_ids: list(block_ids),
        BlockPool,
    ],
    parts=Parts(merge_policy=KeepDuplicates),
    num_blocks=10,
)
