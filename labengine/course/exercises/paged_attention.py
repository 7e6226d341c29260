"""Exercises of the notebook "Paged attention by hand"."""

from __future__ import annotations

import math

from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.request import Request
from labengine.core.step_plan import SlotRun
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.predict_exercise import RevealedStep
from labengine.course.trial import RUN, plays
from labengine.course.words import course_exercise
from labengine.events import BlockAllocated, SlotsWritten


def slots_of(table: list[int], start: int, end: int, block_size: int) -> list[int]:
    """Return the slots of positions start to end - 1."""
    return [table[position // block_size] * block_size + position % block_size for position in range(start, end)]


def _side_by_side(table: list[int], start: int, end: int, block_size: int) -> list[int]:
    first = table[start // block_size] * block_size + start % block_size
    return [first + i for i in range(end - start)]


course_exercise(
    "paged-attention/slot-mapping",
    solution=slots_of,
    cases=[
        ([3, 0, 2], 2, 6, 4), ([5], 0, 3, 4), ([3, 0, 2], 8, 9, 4), ([7, 1], 0, 4, 2), ([1, 9, 4], 3, 12, 4),
        ([2, 6], 5, 5, 4), ([6, 2], 15, 17, 16),
    ],
    num_shown=3,
    num_lines=1,
    mistakes=[_side_by_side, lambda table, start, end, block_size: slots_of(table, 0, end, block_size)],
)  # fmt: skip


def gathered(pool: list[list[str]], table: list[int], num_tokens: int) -> list[str]:
    """Return the content of the slots of positions 0 to num_tokens - 1."""
    return [entry for block_id in table for entry in pool[block_id]][:num_tokens]


POOL = [
    ["a", "cat", "sleeps", "."],
    ["the", "sea", "is", "deep"],
    ["and", "blue", "old", "old"],
    ["?", "?", "?", "?"],
]
PAIRS = [["m", "n"], ["x", "y"], ["p", "q"]]
course_exercise(
    "paged-attention/gather",
    solution=gathered,
    cases=[
        (POOL, [1, 2], 6), (PAIRS, [2], 1), (POOL, [0], 4), (PAIRS, [1, 0, 2], 5), (POOL, [2, 0, 1], 9),
        (POOL, [3, 1], 8), (PAIRS, [], 0),
    ],
    num_shown=2,
    num_lines=2,
    mistakes=[
        lambda pool, table, num_tokens: [entry for block_id in table for entry in pool[block_id]],
        lambda pool, table, num_tokens: [entry for block in pool for entry in block][:num_tokens],
        lambda pool, table, n: [one for i in table for one in pool[i][: n % len(pool[0]) or len(pool[0])]],
    ],
)  # fmt: skip


Part = tuple[float, float, float]
"""The numbers that online softmax keeps of a part: its largest score, sum of weights, and weighted sum of values."""


def joined(one: Part, other: Part) -> Part:
    """Return the three numbers of both parts together: scale each part's sums to the larger of the two scores."""
    top = max(one[0], other[0])
    first, second = math.exp(one[0] - top), math.exp(other[0] - top)
    return top, one[1] * first + other[1] * second, one[2] * first + other[2] * second


def _other_way_round(one: Part, other: Part) -> Part:
    top = max(one[0], other[0])
    first, second = math.exp(top - one[0]), math.exp(top - other[0])
    return top, one[1] * first + other[1] * second, one[2] * first + other[2] * second


course_exercise(
    "paged-attention/two-parts",
    solution=joined,
    cases=[
        ((1.0, 2.0, 3.0), (1.0, 1.0, 5.0)), ((0.0, 1.0, 2.0), (2.0, 1.0, 4.0)), ((5.0, 1.5, 3.0), (3.0, 2.0, 1.0)),
        ((900.0, 1.25, -2.0), (901.0, 3.0, 0.5)), ((-4.0, 1.0, 7.0), (4.0, 1.0, -7.0)),
        ((2.0, 4.0, 1.0), (2.0, 4.0, 1.0)),
    ],
    num_shown=3,
    num_lines=3,
    mistakes=[
        lambda one, other: (max(one[0], other[0]), one[1] + other[1], one[2] + other[2]),
        lambda one, other: (*joined(one, other)[:2], joined(one, other)[2] / joined(one, other)[1]),
        lambda one, other: (*joined(one, other)[:2], one[2] + other[2]),
        _other_way_round,
    ],
)  # fmt: skip


_scattered = plays(
    ("Cats sleep all day and all night long, says she", 2),
    ("The deep sea", 8),
    3,
    ("One two three four five six seven", 4),
)
"""B's second block is a block A has freed, with a smaller id than B's first."""


def _slot_of_b(step: RevealedStep) -> int:
    run = next(event.runs[0] for event in step.of_kind(SlotsWritten) if event.request_id == 1)
    return run[0] * 4 + run[1]


def _slot_after(step: RevealedStep) -> int:
    """Return the slot after position 3's: the answer if the blocks were side by side."""
    position = step.before.requests[1].num_computed_tokens
    return step.before.requests[1].block_tables[0][0] * 4 + position


def _position_of_b(step: RevealedStep) -> int:
    return step.before.requests[1].num_computed_tokens


course_exercise(
    "paged-attention/which-slot",
    play=_scattered,
    truth=_slot_of_b,
    about="number",
    num_blocks=10,
    mistakes=[
        _slot_after,
        _position_of_b,
        lambda step: _slot_of_b(step) + 1,
        lambda step: step.before.requests[1].block_tables[0][0] * 4 + _position_of_b(step) % 4,
    ],
)


class LooksUpTheFirstBlock(KVCacheManager):
    """A manager that assumes that a request's blocks follow its first one in memory."""

    def slot_runs(self, request: Request, start: int, end: int, group: KVCacheGroup) -> tuple[SlotRun, ...]:
        """Return slots, counted from the start of the first block."""
        first, size, runs = request.block_tables[group.index][0], group.block_size, []
        while start < end:
            offset = start % size
            length = min(size - offset, end - start)
            runs.append((first + start // size, offset, length))
            start += length
        return tuple(runs)


course_exercise(
    "paged-attention/first-wrong",
    broken=LooksUpTheFirstBlock,
    play=plays(("Cats sleep all day and night", 2), ("The deep sea", 8), 2, ("One two three four five six", 3), RUN),
    mistakes=[nth_event(BlockAllocated, 3), nth_event(SlotsWritten, 5)],
    num_blocks=8,
)
