"""Questions in the text of the notebook "First light"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from labengine.course.base import Exercise
from labengine.course.exercise import exercise
from labengine.course.phrases import phrases
from labengine.course.predict_exercise import Instance, RevealedStep
from labengine.events import BlockAllocated, PrefixHit
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


def _latecomer(num_foreign: int, prompt: str) -> Instance:
    n = len(prompt.split())
    task = (
        f"nano-vLLM: A and B computed the same {n} words in one step, and the map leads to *B's* blocks. B is done, A "
        f"goes on; another request has taken {num_foreign} of the 8 free blocks since, those of B last, and of these "
        f"the end first. Now A's {n} words come once more. How many of them are found?"
    )

    def play(lab: Lab) -> None:
        lab.add(prompt, max_tokens=8, ignore_eos=True)
        lab.add(prompt, max_tokens=2, ignore_eos=True)
        lab.step(2)
        lab.add(token_ids=range(1000, 1000 + 4 * num_foreign), max_tokens=1, ignore_eos=True)
        lab.step()
        lab.add(prompt, max_tokens=1, ignore_eos=True)

    return Instance(task, play)


def _found(step: RevealedStep) -> int:
    return next((event.num_tokens for event in step.of_kind(PrefixHit) if event.request_id == 3), 0)


def lost() -> Exercise:
    """Predict: what a latecomer finds where the second copy overwrote the map's entries."""
    first = _latecomer(8, QUESTION)
    return exercise(
        "first-light/lost",
        first.task,
        play=first.play,
        truth=_found,
        another=lambda random: _latecomer(random.randrange(4, 9), *phrases(random, random.choice((13, 14, 15)))),
        about="number",
        views=("pool", "map"),
        reason="Only what the map leads to is found, and it leads to B's blocks, as far as nobody has taken them. A's "
        "blocks hold the same, and no entry leads to them.",
        hints=[
            "A's blocks are alive, and the map does not lead to them. Whose blocks does it lead to?",
            "Four blocks were never used, and go first. Then B's: its last one first.",
        ],
        mistakes=[
            (
                lambda step: 12,
                "A's blocks hold these words, but the map leads past them. What of B's is still in the map?",
            ),
            (lambda step: 13, "The last word is always computed; and what is found has to be in the map."),
        ],
        edition="nano-vllm",
        num_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE,
    )


GUESSES: Mapping[str, Callable[[], Exercise]] = {
    "first-light/middle": middle,
    "first-light/after": after,
    "first-light/lost": lost,
}
