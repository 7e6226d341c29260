"""Questions in the text of the notebook "First light"."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from labengine.course.base import Exercise
from labengine.course.phrases import phrases
from labengine.course.predict_exercise import Instance, RevealedStep
from labengine.course.words import Make, course_exercise
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


@course_exercise("first-light/middle")
def middle(make: Make) -> Exercise:
    """Predict: the blocks in use inside the step."""
    first = _copies(MIDDLE, 2, QUESTION)
    return make(
        task=first.task,
        play=first.play,
        truth=_in_the_middle,
        another=_other_copies(MIDDLE),
        about="number",
        views=("pool", "tables"),
        mistakes=[_afterwards, _of_one],
        num_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE,
    )


@course_exercise("first-light/after")
def after(make: Make) -> Exercise:
    """Predict: the blocks in use after the step."""
    first = _copies(AFTER, 2, QUESTION)
    return make(
        task=first.task,
        play=first.play,
        truth=_afterwards,
        another=_other_copies(AFTER),
        about="number",
        views=("pool", "tables"),
        mistakes=[_in_the_middle, _of_one],
        num_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE,
    )
