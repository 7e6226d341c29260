"""Exercises of the notebook "Paged attention by hand"."""

from __future__ import annotations

import math

from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.request import Request
from labengine.core.step_plan import SlotRun
from labengine.course.base import Exercise
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.predict_exercise import RevealedStep
from labengine.course.words import Make, course_exercise
from labengine.events import BlockAllocated, SlotsWritten
from labengine.lab import Lab


def slots_of(table: list[int], start: int, end: int, block_size: int) -> list[int]:
    """Return the slots of positions start to end - 1."""
    return [table[position // block_size] * block_size + position % block_size for position in range(start, end)]


def _side_by_side(table: list[int], start: int, end: int, block_size: int) -> list[int]:
    first = table[start // block_size] * block_size + start % block_size
    return [first + i for i in range(end - start)]


def _from_the_start(table: list[int], start: int, end: int, block_size: int) -> list[int]:
    return slots_of(table, 0, end, block_size)


@course_exercise("paged-attention/slot-mapping")
def slot_mapping(make: Make) -> Exercise:
    """Fill in: the slots of a stretch of positions."""
    return make(
        solution=slots_of,
        cases=[
            ([3, 0, 2], 2, 6, 4), ([5], 0, 3, 4), ([3, 0, 2], 8, 9, 4), ([7, 1], 0, 4, 2), ([1, 9, 4], 3, 12, 4),
            ([2, 6], 5, 5, 4), ([6, 2], 15, 17, 16),
        ],
        num_shown=3,
        num_lines=1,
        mistakes=[_side_by_side, _from_the_start],
    )  # fmt: skip


def gathered(pool: list[list[str]], table: list[int], num_tokens: int) -> list[str]:
    """Return what the slots of positions 0 to num_tokens - 1 hold."""
    return [entry for block_id in table for entry in pool[block_id]][:num_tokens]


def _complete_blocks(pool: list[list[str]], table: list[int], num_tokens: int) -> list[str]:
    return [entry for block_id in table for entry in pool[block_id]]


def _ignores_table(pool: list[list[str]], table: list[int], num_tokens: int) -> list[str]:
    return [entry for block in pool for entry in block][:num_tokens]


def _cuts_every_block(pool: list[list[str]], table: list[int], num_tokens: int) -> list[str]:
    size = len(pool[0])
    return [entry for block_id in table for entry in pool[block_id][: num_tokens % size or size]]


@course_exercise("paged-attention/gather")
def gather(make: Make) -> Exercise:
    """Fill in: read a text through its block table."""
    pool = [
        ["a", "cat", "sleeps", "."],
        ["the", "sea", "is", "deep"],
        ["and", "blue", "old", "old"],
        ["?", "?", "?", "?"],
    ]
    pairs = [["m", "n"], ["x", "y"], ["p", "q"]]
    return make(
        solution=gathered,
        cases=[
            (pool, [1, 2], 6), (pairs, [2], 1), (pool, [0], 4), (pairs, [1, 0, 2], 5), (pool, [2, 0, 1], 9),
            (pool, [3, 1], 8), (pairs, [], 0),
        ],
        num_shown=2,
        num_lines=2,
        mistakes=[_complete_blocks, _ignores_table, _cuts_every_block],
    )  # fmt: skip


Part = tuple[float, float, float]
"""What online softmax keeps of a part: its largest score, the sum of its weights, and the weighted sum of values."""


def joined(one: Part, other: Part) -> Part:
    """Return the three numbers of both parts together: each part's sums are scaled to the larger top."""
    top = max(one[0], other[0])
    first, second = math.exp(one[0] - top), math.exp(other[0] - top)
    return top, one[1] * first + other[1] * second, one[2] * first + other[2] * second


def _adds_up(one: Part, other: Part) -> Part:
    return max(one[0], other[0]), one[1] + other[1], one[2] + other[2]


def _keeps_out(one: Part, other: Part) -> Part:
    top, total, _ = joined(one, other)
    return top, total, one[2] + other[2]


def _other_way_round(one: Part, other: Part) -> Part:
    top = max(one[0], other[0])
    first, second = math.exp(top - one[0]), math.exp(top - other[0])
    return top, one[1] * first + other[1] * second, one[2] * first + other[2] * second


def _divides(one: Part, other: Part) -> Part:
    top, total, out = joined(one, other)
    return top, total, out / total


@course_exercise("paged-attention/two-parts")
def two_parts(make: Make) -> Exercise:
    """Fill in: online softmax, two parts put together."""
    return make(
        solution=joined,
        cases=[
            ((1.0, 2.0, 3.0), (1.0, 1.0, 5.0)), ((0.0, 1.0, 2.0), (2.0, 1.0, 4.0)), ((5.0, 1.5, 3.0), (3.0, 2.0, 1.0)),
            ((900.0, 1.25, -2.0), (901.0, 3.0, 0.5)), ((-4.0, 1.0, 7.0), (4.0, 1.0, -7.0)),
            ((2.0, 4.0, 1.0), (2.0, 4.0, 1.0)),
        ],
        num_shown=3,
        num_lines=3,
        mistakes=[_adds_up, _divides, _keeps_out, _other_way_round],
    )  # fmt: skip


def _scattered(lab: Lab) -> None:
    """B's second block is one that A has left behind, in front of B's first."""
    lab.add("Cats sleep all day and all night long, says she", max_tokens=2)
    lab.add("The deep sea", max_tokens=8)
    lab.step(3)
    lab.add("One two three four five six seven", max_tokens=4)


def _slot_of_b(step: RevealedStep) -> int:
    run = next(event.runs[0] for event in step.of_kind(SlotsWritten) if event.request_id == 1)
    return run[0] * 4 + run[1]


def _slot_after(step: RevealedStep) -> int:
    """Return the slot after the one of position 3: right if the blocks lay side by side."""
    position = step.before.requests[1].num_computed_tokens
    return step.before.requests[1].block_tables[0][0] * 4 + position


def _position_of_b(step: RevealedStep) -> int:
    return step.before.requests[1].num_computed_tokens


def _behind_the_newest(step: RevealedStep) -> int:
    return _slot_of_b(step) + 1


def _right_place_in_the_first_block(step: RevealedStep) -> int:
    return step.before.requests[1].block_tables[0][0] * 4 + _position_of_b(step) % 4


@course_exercise("paged-attention/which-slot")
def which_slot(make: Make) -> Exercise:
    """Predict: the slot that a decode writes."""
    return make(
        play=_scattered,
        truth=_slot_of_b,
        about="number",
        num_blocks=10,
        block_size=4,
        mistakes=[_slot_after, _position_of_b, _behind_the_newest, _right_place_in_the_first_block],
    )


class LooksUpTheFirstBlock(KVCacheManager):
    """A manager that takes for granted that a request's blocks follow its first one."""

    def slot_runs(self, request: Request, start: int, end: int, group: KVCacheGroup) -> tuple[SlotRun, ...]:
        """Return slots, counted on from the first block."""
        first, size, runs = request.block_tables[group.index][0], group.block_size, []
        while start < end:
            offset = start % size
            length = min(size - offset, end - start)
            runs.append((first + start // size, offset, length))
            start += length
        return tuple(runs)


def _mixed(lab: Lab) -> None:
    lab.add("Cats sleep all day and night", max_tokens=2)
    lab.add("The deep sea", max_tokens=8)
    lab.step(2)
    lab.add("One two three four five six", max_tokens=3)
    lab.run()


def _overwriting(lab: Lab) -> int:
    """Return the event with which the third request writes over what went astray."""
    return nth_event(SlotsWritten, 5)(lab)


@course_exercise("paged-attention/first-wrong")
def first_wrong(make: Make) -> Exercise:
    """Find the first wrong event: an engine that looks up the first block only."""
    return make(
        broken=LooksUpTheFirstBlock,
        play=_mixed,
        mistakes=[nth_event(BlockAllocated, 3), _overwriting],
        num_blocks=8,
        block_size=4,
    )
