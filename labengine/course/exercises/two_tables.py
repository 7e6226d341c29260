"""Exercises of the notebook "One request, two block tables"."""

from __future__ import annotations

from typing import Any

from labengine.config import GroupSpec
from labengine.core.sliding_window import SlidingWindowGroup
from labengine.course.trial import plays
from labengine.course.words import course_exercise
from labengine.events import BlockFreed

WINDOW_GROUP = 1


def _settings(num_blocks: int = 20) -> dict[str, Any]:
    """Return the settings of the notebook's lab: one full group, and one with a window of 8."""
    return {"num_blocks": num_blocks, "groups": (GroupSpec(4), GroupSpec(4, "sliding_window", 8))}


course_exercise(
    "two-tables/held",
    play=plays((range(11), 12), 1),
    truth=lambda step: sum(block_id >= 0 for block_id in step.after.requests[0].block_tables[WINDOW_GROUP]),
    about="number",
    rounds=3,
    mistakes=[lambda step: len(step.after.requests[0].block_tables[WINDOW_GROUP])],
    **_settings(),
)


course_exercise(
    "two-tables/freed-block",
    play=plays((range(9), 9), (range(100, 106), 9), 3),
    truth=lambda step: next(event.block_id for event in step.of_kind(BlockFreed) if event.reason == "window"),
    about="block",
    mistakes=[
        lambda step: step.before.requests[0].block_tables[0][0],
        lambda step: step.before.requests[1].block_tables[1][0],
    ],
    **_settings(),
)


def num_skipped_blocks(num_computed: int, window: int, block_size: int) -> int:
    """Count the blocks that lie completely before the window of the next token."""
    first_needed = max(0, num_computed - window + 1)
    return first_needed // block_size


course_exercise(
    "two-tables/skipped",
    solution=num_skipped_blocks,
    cases=[(11, 8, 4), (10, 8, 4), (18, 8, 4), (3, 8, 4), (0, 4, 4), (16, 1, 4), (20, 6, 4), (512, 512, 16)],
    num_lines=2,
    mistakes=[
        lambda num_computed, window, block_size: max(0, num_computed - window) // block_size,
        lambda num_computed, window, block_size: -(-max(0, num_computed - window + 1) // block_size),
        lambda num_computed, window, block_size: (num_computed - window + 1) // block_size,
    ],
)


def most_blocks(window: int, block_size: int) -> int:
    """Count the most blocks that `window` consecutive positions can touch."""
    return (window + block_size - 2) // block_size + 1


course_exercise(
    "two-tables/most",
    solution=most_blocks,
    cases=[(8, 4), (5, 4), (6, 4), (1, 4), (2, 4), (9, 4), (512, 16), (3, 1), (17, 16)],
    num_lines=1,
    mistakes=[
        lambda window, block_size: -(-window // block_size),
        lambda window, block_size: window // block_size + 1,
        lambda window, block_size: -(-window // block_size) + 1,
    ],
)


class CountsWithoutItself(SlidingWindowGroup):
    """A window that is one token too short: it forgets that the window includes the token's own position."""

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """Return the tokens before the window, plus one."""
        return max(0, num_computed_tokens - self.window + 2)


course_exercise(
    "two-tables/first-wrong",
    broken=CountsWithoutItself,
    play=plays((range(6), 8), 6),
    mistakes=["SlotsWritten"],
    **_settings(),
)
