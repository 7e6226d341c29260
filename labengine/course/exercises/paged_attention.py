"""Exercises of the notebook "Paged attention by hand"."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.request import Request
from labengine.core.step_plan import SlotRun
from labengine.course.base import Exercise
from labengine.course.exercise import exercise
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.predict_exercise import RevealedStep
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


def slot_mapping() -> Exercise:
    """Fill in: the slots of a stretch of positions."""
    return exercise(
        "paged-attention/slot-mapping",
        "In each step the engine has to say where the keys and values of the step's tokens are written: the *slot "
        "mapping*. Return the slots of the positions `start` to `end - 1`, in order. A stretch may begin in the middle "
        "of a block, and end in another one.",
        solution=slots_of,
        cases=[
            ([3, 0, 2], 2, 6, 4), ([5], 0, 3, 4), ([3, 0, 2], 8, 9, 4), ([7, 1], 0, 4, 2), ([1, 9, 4], 3, 12, 4),
            ([2, 6], 5, 5, 4), ([6, 2], 15, 17, 16),
        ],
        num_shown=3,
        num_lines=1,
        hints=[
            "Each position is looked up on its own: which entry of the table, and how far into that block?",
            "One position: `table[position // block_size] * block_size + position % block_size`.",
        ],
        mistakes=[
            (
                _side_by_side,
                "You look up the first position and count on. The next block of the request may lie anywhere: look up "
                "every position.",
            ),
            (_from_the_start, "You begin at position 0: earlier positions were written in earlier steps."),
        ],
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


def gather() -> Exercise:
    """Fill in: read a text through its block table."""
    pool = [
        ["a", "cat", "sleeps", "."],
        ["the", "sea", "is", "deep"],
        ["and", "blue", "old", "old"],
        ["?", "?", "?", "?"],
    ]
    pairs = [["m", "n"], ["x", "y"], ["p", "q"]]
    return exercise(
        "paged-attention/gather",
        "`pool[i]` are the entries of block i. (Words stand here where keys and values would be.) Return, as one list, "
        "the entries of a request with this block `table`, of which `num_tokens` are written. The last block may not "
        "be full: what stands in its other slots belongs to nobody.",
        solution=gathered,
        cases=[
            (pool, [1, 2], 6), (pairs, [2], 1), (pool, [0], 4), (pairs, [1, 0, 2], 5), (pool, [2, 0, 1], 9),
            (pool, [3, 1], 8), (pairs, [], 0),
        ],
        num_shown=2,
        num_lines=2,
        hints=[
            "Go through `table`, not through `pool`, and put the blocks one behind the other.",
            "Cut the list at the end, once: `[:num_tokens]`.",
        ],
        mistakes=[
            (
                _complete_blocks,
                "You read the last block to its end. Its last slots hold what an earlier request has left there.",
            ),
            (_ignores_table, "You read the pool from its beginning. Which blocks are this request's?"),
            (_cuts_every_block, "Only the last block may be partly full; you cut all of them."),
        ],
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


def two_parts() -> Exercise:
    """Fill in: online softmax, two parts put together."""
    return exercise(
        "paged-attention/two-parts",
        "Two workers have each read half of a request's blocks. Each has kept three numbers: `top`, its largest score; "
        "`total`, the sum of its weights `exp(score - top)`; `out`, the sum of weight times value. Return the three "
        "numbers `(top, total, out)` of both halves together. (`math` is imported in the cell; `out` is one number "
        "here, and a row of numbers in a model.)",
        solution=joined,
        cases=[
            ((1.0, 2.0, 3.0), (1.0, 1.0, 5.0)), ((0.0, 1.0, 2.0), (2.0, 1.0, 4.0)), ((5.0, 1.5, 3.0), (3.0, 2.0, 1.0)),
            ((900.0, 1.25, -2.0), (901.0, 3.0, 0.5)), ((-4.0, 1.0, 7.0), (4.0, 1.0, -7.0)),
            ((2.0, 4.0, 1.0), (2.0, 4.0, 1.0)),
        ],
        num_shown=3,
        num_lines=3,
        hints=[
            "Only sums that were taken against the same top can be added. What is the top of both together?",
            "A part's sums were taken against its own top: multiply them by `math.exp(its top - the new top)`.",
        ],
        mistakes=[
            (
                _adds_up,
                "The sums were taken against different tops. That is right only where both tops are equal: scale them "
                "first.",
            ),
            (
                _divides,
                "You divide by `total`. That is done once, when all parts are together; these may be joined again.",
            ),
            (_keeps_out, "`out` is made of the same weights as `total`, and has to be scaled in the same way."),
            (
                _other_way_round,
                "You scale the wrong way round: the part with the *smaller* top shrinks, the other one stays as it is.",
            ),
        ],
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


def which_slot() -> Exercise:
    """Predict: the slot that a decode writes."""
    return exercise(
        "paged-attention/which-slot",
        "In the next step the model reads B's newest token, and writes its keys and values. Into which slot of the "
        "pool? (Blocks have 4 tokens; slots are counted through the whole pool, from 0.)",
        play=_scattered,
        truth=_slot_of_b,
        about="number",
        num_blocks=10,
        block_size=4,
        hints=[
            "How many of B's tokens are written already? That is the position of the next one.",
            "The position's block is an entry of B's block table; its first slot is four times its number.",
        ],
        mistakes=[
            (_slot_after, "That would be right if B's blocks lay side by side. Look at the second entry of its table."),
            (_position_of_b, "That is the position in B's text. Which block of the pool is it in?"),
            (
                _behind_the_newest,
                "One too far: B's newest token is known, and not written yet. It is the one to write.",
            ),
            (
                _right_place_in_the_first_block,
                "The place in the block is right. Which entry of B's table is the block?",
            ),
        ],
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


def first_wrong() -> Exercise:
    """Find the first wrong event: an engine that looks up the first block only."""
    return exercise(
        "paged-attention/first-wrong",
        "This engine looks up the first block of a request and takes for granted that the others follow it. For a "
        "while that goes well. Which event is the first that is wrong?",
        broken=LooksUpTheFirstBlock,
        because=(
            "B's position 4 is the first of its second block, which is #1. It is written into the block behind B's "
            "first one, #3, which is C's."
        ),
        play=_mixed,
        hints=[
            "A and C get blocks that happen to lie side by side. Look at B's block table.",
            "B's second block is not the one behind its first. In which step is it written to?",
        ],
        mistakes=[
            (
                nth_event(BlockAllocated, 3),
                "B gets the block at the head of the free queue: that is right, wherever that block lies. What does "
                "the engine make of it?",
            ),
            (
                _overwriting,
                "C writes into its own block, as it may. Who had written there before, without holding it?",
            ),
        ],
        num_blocks=8,
        block_size=4,
    )


EXERCISES: Mapping[str, Callable[[], Exercise]] = {
    "paged-attention/gather": gather,
    "paged-attention/slot-mapping": slot_mapping,
    "paged-attention/which-slot": which_slot,
    "paged-attention/two-parts": two_parts,
    "paged-attention/first-wrong": first_wrong,
}
