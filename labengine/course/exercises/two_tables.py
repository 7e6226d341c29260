"""Exercises of the notebook "One request, two block tables"."""

from __future__ import annotations

from typing import Any

from labengine.config import GroupSpec
from labengine.core.sliding_window import SlidingWindowGroup
from labengine.course.base import Exercise
from labengine.course.predict_exercise import RevealedStep
from labengine.course.words import Make, course_exercise
from labengine.events import BlockFreed
from labengine.lab import Lab

WINDOW_GROUP = 1


def _settings(num_blocks: int = 20) -> dict[str, Any]:
    """Return the lab of the notebook: one full group, and one with a window of 8."""
    return {"num_blocks": num_blocks, "groups": (GroupSpec(4), GroupSpec(4, "sliding_window", 8))}


def _one_prompt(lab: Lab) -> None:
    lab.add(token_ids=range(11), max_tokens=12, ignore_eos=True)
    lab.step()


def _num_held(step: RevealedStep) -> int:
    return sum(block_id >= 0 for block_id in step.after.requests[0].block_tables[WINDOW_GROUP])


def _num_entries(step: RevealedStep) -> int:
    return len(step.after.requests[0].block_tables[WINDOW_GROUP])


@course_exercise("two-tables/held")
def held(make: Make) -> Exercise:
    """Predict: blocks of the window group, step by step."""
    return make(
        play=_one_prompt,
        truth=_num_held,
        about="number",
        rounds=3,
        mistakes=[_num_entries],
        **_settings(),
    )


def _two_prompts(lab: Lab) -> None:
    lab.add(token_ids=range(9), max_tokens=9, ignore_eos=True)
    lab.add(token_ids=range(100, 106), max_tokens=9, ignore_eos=True)
    lab.step(3)


def _window_freed(step: RevealedStep) -> int:
    return next(event.block_id for event in step.of_kind(BlockFreed) if event.reason == "window")


def _full_groups_first(step: RevealedStep) -> int:
    return step.before.requests[0].block_tables[0][0]


def _of_the_other_request(step: RevealedStep) -> int:
    return step.before.requests[1].block_tables[1][0]


@course_exercise("two-tables/freed-block")
def freed_block(make: Make) -> Exercise:
    """Predict: the block that leaves the window."""
    return make(
        play=_two_prompts,
        truth=_window_freed,
        about="block",
        mistakes=[_full_groups_first, _of_the_other_request],
        **_settings(),
    )


def num_skipped_blocks(num_computed: int, window: int, block_size: int) -> int:
    """Count the blocks that lie completely before the window of the next token."""
    first_needed = max(0, num_computed - window + 1)
    return first_needed // block_size


def _one_short(num_computed: int, window: int, block_size: int) -> int:
    return max(0, num_computed - window) // block_size


def _rounded_up(num_computed: int, window: int, block_size: int) -> int:
    return -(-max(0, num_computed - window + 1) // block_size)


def _below_zero(num_computed: int, window: int, block_size: int) -> int:
    return (num_computed - window + 1) // block_size


@course_exercise("two-tables/skipped")
def skipped(make: Make) -> Exercise:
    """Fill in: how many blocks have left the window."""
    return make(
        solution=num_skipped_blocks,
        cases=[(11, 8, 4), (10, 8, 4), (18, 8, 4), (3, 8, 4), (0, 4, 4), (16, 1, 4), (20, 6, 4), (512, 512, 16)],
        num_lines=2,
        mistakes=[_one_short, _rounded_up, _below_zero],
    )


def most_blocks(window: int, block_size: int) -> int:
    """Count the blocks that `window` positions in a row touch at the most."""
    return (window + block_size - 2) // block_size + 1


def _as_if_aligned(window: int, block_size: int) -> int:
    return -(-window // block_size)


def _one_more_always(window: int, block_size: int) -> int:
    return -(-window // block_size) + 1


def _one_more_rounded_down(window: int, block_size: int) -> int:
    return window // block_size + 1


@course_exercise("two-tables/most")
def most(make: Make) -> Exercise:
    """Fill in: the most blocks that a window touches."""
    return make(
        solution=most_blocks,
        cases=[(8, 4), (5, 4), (6, 4), (1, 4), (2, 4), (9, 4), (512, 16), (3, 1), (17, 16)],
        num_lines=1,
        mistakes=[_as_if_aligned, _one_more_rounded_down, _one_more_always],
    )


class CountsWithoutItself(SlidingWindowGroup):
    """A window that is one token too short: it forgets that the token's own position is one of the window's."""

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """Return the tokens before the window, and one more."""
        return max(0, num_computed_tokens - self.window + 2)


def _one_prompt_and_steps(lab: Lab) -> None:
    lab.add(token_ids=range(6), max_tokens=8, ignore_eos=True)
    lab.step(6)


@course_exercise("two-tables/first-wrong")
def first_wrong(make: Make) -> Exercise:
    """Find the first wrong event: a block leaves the window too early."""
    return make(
        broken=CountsWithoutItself,
        play=_one_prompt_and_steps,
        mistakes=["SlotsWritten"],
        **_settings(),
    )
