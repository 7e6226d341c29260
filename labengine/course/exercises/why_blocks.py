"""Exercises of the notebook "Why blocks?"."""

from __future__ import annotations

from random import Random

from labengine.core.free_queue import FreeQueue
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.phrases import phrases
from labengine.course.predict_exercise import Instance
from labengine.course.trial import plays
from labengine.course.words import course_exercise
from labengine.events import BlockAllocated, BlockFreed, SlotsWritten

SEA = "The sea is deep and blue and cold today"


PANELS = ("pool", "tables", "queue", "log")
"""The views that the notebook has introduced."""


def slot_of(table: list[int], position: int, block_size: int) -> int:
    """Return the slot of a position, from its block in the table and the offset in that block."""
    return table[position // block_size] * block_size + position % block_size


course_exercise(
    "why-blocks/slot",
    solution=slot_of,
    cases=[([3, 0, 2], 6, 4), ([3, 0, 2], 0, 4), ([7], 3, 16), ([5, 1], 15, 8), ([0, 1, 2], 9, 4), ([9, 4], 2, 2)],
    num_shown=2,
    num_lines=1,
    mistakes=[
        lambda table, position, block_size: position,
        lambda table, position, block_size: table[-1] * block_size + position % block_size,
        lambda table, position, block_size: table[position // block_size] * block_size,
        lambda table, position, block_size: table[position // block_size] + position % block_size,
    ],
)


def num_unwritten(num_tokens: int, block_size: int) -> int:
    """Return the slots that a request holds but has not written: the rest of its last block."""
    return -num_tokens % block_size


course_exercise(
    "why-blocks/waste",
    solution=num_unwritten,
    cases=[(6, 4), (1, 16), (17, 16), (4, 4), (32, 16), (1024, 1024)],
    num_shown=3,
    num_lines=1,
    mistakes=[
        lambda num_tokens, block_size: block_size - num_tokens % block_size,
        lambda num_tokens, block_size: num_tokens % block_size,
    ],
)


def _other_traffic(random: Random) -> Instance:
    *texts, late = phrases(random, *random.choices(range(2, 9), k=4))
    lengths, num_steps = random.choices(range(1, 7), k=3), random.randrange(1, 5)
    return Instance(_NEXT, plays(*zip(texts, lengths, strict=True), num_steps, (late, 4)))


_NEXT = "A request is waiting, and will be admitted in the next step. Which block does it take first?"


course_exercise(
    "why-blocks/next-block",
    play=plays(("Cats sleep all day and night", 9), ("One two three", 1), (SEA, 1), 2, ("A dog barks", 4)),
    truth=lambda step: step.first(BlockAllocated).block_id,
    another=_other_traffic,
    about="block",
    num_blocks=10,
    mistakes=[lambda step: min(step.before.free_queue), lambda step: step.before.free_queue[-1]],
    panels=PANELS,
)


def _two_arrive(one: str, length: int, other: str) -> Instance:
    tokens = {3: "three", 4: "four", 5: "five"}[length]
    task = (
        f"A's answer will have {tokens} tokens, and has one. B has just arrived, and is done after one token. How many "
        "blocks are free after the next step? Blocks have 4 tokens."
    )
    return Instance(task, plays((one, length), 1, (other, 1)))


def _two_others(random: Random) -> Instance:
    one, other = phrases(random, random.randrange(3, 13), random.randrange(3, 15))
    return _two_arrive(one, random.randrange(3, 6), other)


course_exercise(
    "why-blocks/num-free",
    play=_two_arrive("Cats sleep all day and night", 3, SEA),
    truth=lambda step: len(step.after.free_queue),
    another=_two_others,
    about="number",
    rounds=2,
    num_blocks=8,
    mistakes=[
        lambda step: len(step.after.free_queue) - sum(event.ref_count == 0 for event in step.of_kind(BlockFreed))
    ],
    panels=PANELS,
)


class GivesOneTwice(FreeQueue):
    """A queue that gives a block away twice: for a single block it returns the last one given before."""

    _newest: int | None = None

    def take(self, num_blocks: int) -> list[int]:
        """Take blocks from the head; for a single one, return the last block given, if any."""
        if num_blocks == 1 and self._newest is not None:
            taken, self._newest = [self._newest], None
            return taken
        taken = super().take(num_blocks)
        self._newest = taken[-1]
        return taken


course_exercise(
    "why-blocks/twice",
    broken=GivesOneTwice,
    play=plays(("The cat sleeps all day", 3), 1, ("Two fish", 2), 2),
    mistakes=[nth_event(BlockAllocated, 1), nth_event(SlotsWritten, 2)],
    num_blocks=5,
    panels=PANELS,
)
