"""Questions in the text of the notebook "First light"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from labengine.course.base import Exercise
from labengine.course.exercise import exercise
from labengine.course.phrases import phrases
from labengine.course.predict_exercise import Instance, RevealedStep
from labengine.events import BlockAllocated
from labengine.lab import Lab

QUESTION = "Two people ask the very same question at the very same moment. The"
NUM_BLOCKS, BLOCK_SIZE = 12, 4


def _together(copies: int, prompt: str) -> Callable[[Lab], None]:
    def play(lab: Lab) -> None:
        for _ in range(copies):
            lab.add(prompt, max_tokens=8)

    return play


def _copies(task: str, copies: int, prompt: str) -> Instance:
    people = {2: "Two", 3: "Three"}[copies]
    return Instance(task.format(people=people, n=len(prompt.split())), _together(copies, prompt))


def _other_copies(task: str) -> Callable[[Random], Instance]:
    def draw(random: Random) -> Instance:
        return _copies(task, random.choice((2, 3)), *phrases(random, random.randrange(5, 17)))

    return draw


def _in_the_middle(step: RevealedStep) -> int:
    return step.before.num_used_blocks + len(step.of_kind(BlockAllocated))


def _afterwards(step: RevealedStep) -> int:
    return step.after.num_used_blocks


def _of_one(step: RevealedStep) -> int:
    return _in_the_middle(step) // len(step.after.requests)


MIDDLE = (
    "{people} people send the same {n} words at the same moment; 12 blocks with room for 4 words each are free. How "
    "many blocks are in use *in the middle* of the step, when all copies have been computed?"
)
AFTER = (
    "{people} people send the same {n} words at the same moment; 12 blocks with room for 4 words each are free. How "
    "many blocks are in use *after* the step, when equal full blocks have been merged?"
)


def middle() -> Exercise:
    """Predict: the blocks in use inside the step."""
    first = _copies(MIDDLE, 2, QUESTION)
    return exercise(
        "first-light/middle",
        first.task,
        play=first.play,
        truth=_in_the_middle,
        another=_other_copies(MIDDLE),
        about="number",
        views=("pool", "tables"),
        reason="Each copy takes its own blocks: the words over 4, rounded up. Nothing is merged before it is computed.",
        hints=[
            "In the middle of the step nothing is merged yet: each copy has blocks of its own.",
            "How many blocks of 4 words does one copy fill? The last one may be partly full.",
        ],
        mistakes=[
            (_afterwards, "That is after the step. Before a block is computed, the engine cannot know a copy of it."),
            (_of_one, "That is one copy alone. The engine notices only afterwards that they are equal."),
        ],
        num_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE,
    )


def after() -> Exercise:
    """Predict: the blocks in use after the step."""
    first = _copies(AFTER, 2, QUESTION)
    return exercise(
        "first-light/after",
        first.task,
        play=first.play,
        truth=_afterwards,
        another=_other_copies(AFTER),
        about="number",
        views=("pool", "tables"),
        reason="The full blocks are there once. The last block of each copy, if it is not full, stays its own.",
        hints=[
            "Full blocks that are equal are merged: one of each stays.",
            "A block that is not full stays with its request, which goes on writing into it.",
        ],
        mistakes=[
            (_in_the_middle, "That is the middle of the step. Then each full block that is there twice is merged."),
            (_of_one, "Only full blocks are merged. A partly filled one stays with its request, which writes into it."),
        ],
        num_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE,
    )


GUESSES: Mapping[str, Callable[[], Exercise]] = {
    "first-light/middle": middle,
    "first-light/after": after,
}
