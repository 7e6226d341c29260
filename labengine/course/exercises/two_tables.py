"""Exercises of the notebook "One request, two block tables"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from labengine.config import GroupSpec
from labengine.core.sliding_window import SlidingWindowGroup
from labengine.course.base import Exercise
from labengine.course.exercise import exercise
from labengine.course.predict_exercise import RevealedStep
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


def held() -> Exercise:
    """Predict: blocks of the window group, step by step."""
    return exercise(
        "two-tables/held",
        "The first lab of the notebook: a prompt of 11 tokens is computed, and the window group has a window of 8. The "
        "next step computes position 11. How many blocks does the window group's table hold after it? (Entries without "
        "a block do not count.)",
        play=_one_prompt,
        truth=_num_held,
        about="number",
        rounds=3,
        hints=[
            "Position 11 looks at itself and at the 7 positions before it. In which blocks of 4 are they?",
            "Before each step, every block that the new token will not look at is given back.",
        ],
        mistakes=[
            (_num_entries, "So many entries has the table. An entry whose block was given back stays, without one."),
        ],
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


def freed_block() -> Exercise:
    """Predict: the block that leaves the window."""
    return exercise(
        "two-tables/freed-block",
        "The two groups of the notebook. A had 9 prompt tokens, B 6; three steps are over, and A's next token is at "
        "position 11. The next step gives one block back. Which?",
        play=_two_prompts,
        truth=_window_freed,
        about="block",
        hints=[
            "Only one of the two groups ever gives a block back while its request runs.",
            "Position 11 looks at positions 4 to 11. Which entry of A's window table lies before them?",
        ],
        mistakes=[
            (
                _full_groups_first,
                "That is the first block of A's full group: its layers look at every token, for ever.",
            ),
            (
                _of_the_other_request,
                "That is B's window. B has computed 8 tokens, and the next one looks at positions 1 to 8: all its "
                "blocks are needed.",
            ),
        ],
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


def skipped() -> Exercise:
    """Fill in: how many blocks have left the window."""
    return exercise(
        "two-tables/skipped",
        "`num_computed` tokens are computed, so the next token is at position `num_computed`. It looks at itself and "
        "at the `window - 1` tokens before it. How many blocks at the beginning of the table may be given back?",
        solution=num_skipped_blocks,
        cases=[(11, 8, 4), (10, 8, 4), (18, 8, 4), (3, 8, 4), (0, 4, 4), (16, 1, 4), (20, 6, 4), (512, 512, 16)],
        num_lines=2,
        hints=[
            "Which position is the first that the next token looks at? 4, for 11 computed tokens and a window of 8.",
            "A block can be given back if all of its positions lie before that one. And there is no position below 0.",
        ],
        mistakes=[
            (_one_short, "The window counts the token itself: of 8 tokens, 7 lie before it."),
            (_rounded_up, "The first needed position may lie inside a block, and that block has to stay: round down."),
            (_below_zero, "A short text fills less than a window. Then nothing may be given back, and not -1 blocks."),
        ],
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


def most() -> Exercise:
    """Fill in: the most blocks that a window touches."""
    return exercise(
        "two-tables/most",
        "A window may begin anywhere in a block. How many blocks do `window` positions in a row touch at the most?",
        solution=most_blocks,
        cases=[(8, 4), (5, 4), (6, 4), (1, 4), (2, 4), (9, 4), (512, 16), (3, 1), (17, 16)],
        num_lines=1,
        hints=[
            "Let the window begin at the last position of a block. How many positions are left for other blocks?",
            "One block for the first position, and `window - 1` positions behind it: round up.",
        ],
        mistakes=[
            (_as_if_aligned, "That is right only if the window begins where a block begins."),
            (_one_more_rounded_down, "Try 6 positions that begin at the last one of a block of 4: 1, 4 and 1."),
            (_one_more_always, "Too careful: 5 positions touch two blocks of 4 at the most, wherever they begin."),
        ],
    )


class CountsWithoutItself(SlidingWindowGroup):
    """A window that is one token too short: it forgets that the token's own position is one of the window's."""

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """Return the tokens before the window, and one more."""
        return max(0, num_computed_tokens - self.window + 2)


def _one_prompt_and_steps(lab: Lab) -> None:
    lab.add(token_ids=range(6), max_tokens=8, ignore_eos=True)
    lab.step(6)


def first_wrong() -> Exercise:
    """Find the first wrong event: a block leaves the window too early."""
    return exercise(
        "two-tables/first-wrong",
        "In this engine the window should be 8 tokens, and is one token too short. One request of 6 tokens, blocks of "
        "4. Which event is the first that is wrong?",
        broken=CountsWithoutItself,
        because=(
            "The next position is 10, and looks at positions 3 to 10. Position 3 is in the block that is given back."
        ),
        play=_one_prompt_and_steps,
        hints=[
            "Block by block: up to which position is the window group's first block needed?",
            "The first block holds positions 0 to 3. Position 10 looks at 3 to 10, and position 11 at 4 to 11.",
        ],
        mistakes=[
            ("SlotsWritten", "What is written goes where it belongs. What is missing when it is read?"),
        ],
        **_settings(),
    )


EXERCISES: Mapping[str, Callable[[], Exercise]] = {
    "two-tables/held": held,
    "two-tables/freed-block": freed_block,
    "two-tables/skipped": skipped,
    "two-tables/most": most,
    "two-tables/first-wrong": first_wrong,
}
