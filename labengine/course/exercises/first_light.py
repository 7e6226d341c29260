"""Exercises of the notebook "First light"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from labengine.core.block_pool import BlockPool
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.phrases import phrases
from labengine.course.predict_exercise import Instance, RevealedStep
from labengine.course.trial import RUN, plays
from labengine.course.words import course_exercise
from labengine.events import BlockAllocated, BlockFreed, BlockMerged, ForwardRan, SlotsWritten
from labengine.lab import Lab

QUESTION = "Two people ask the very same question at the very same moment. The"


def peak_and_after(num_tokens: int, block_size: int, num_copies: int) -> tuple[int, int]:
    """Return the blocks in use in the middle of the step and after it: only full blocks are merged."""
    num_full = num_tokens // block_size
    num_partial = 1 if num_tokens % block_size else 0
    return num_copies * (num_full + num_partial), num_full + num_copies * num_partial


course_exercise(
    "first-light/peak",
    solution=peak_and_after,
    cases=[(14, 4, 2), (14, 16, 2), (12, 4, 3), (3, 4, 4), (801, 256, 2), (64, 16, 8), (5, 1, 2)],
    num_shown=2,
    num_lines=3,
    mistakes=[
        lambda n, size, copies: (copies * -(-n // size), -(-n // size)),
        [
            lambda n, size, copies: (copies * (n // size + 1), n // size + copies),
            lambda n, size, copies: (copies * (n // size + 1), peak_and_after(n, size, copies)[1]),
            lambda n, size, copies: (peak_and_after(n, size, copies)[0], n // size + copies),
            lambda n, size, copies: (copies * -(-n // size), -(-n // size) + copies - 1),
        ],
        lambda n, size, copies: (-(-copies * n // size), peak_and_after(n, size, copies)[1]),
        lambda n, size, copies: (peak_and_after(n, size, copies)[1],) * 2,
    ],
)


def num_shared_blocks(one: Sequence[int], other: Sequence[int], block_size: int) -> int:
    """Return the number of full blocks with equal tokens that also have equal tokens before them."""
    num_equal = 0
    while num_equal < min(len(one), len(other)) and one[num_equal] == other[num_equal]:
        num_equal += 1
    return num_equal // block_size


def _counts_a_partial_one(one: Sequence[int], other: Sequence[int], block_size: int) -> int:
    num_equal = 0
    while num_equal < min(len(one), len(other)) and one[num_equal] == other[num_equal]:
        num_equal += 1
    return -(-num_equal // block_size)


course_exercise(
    "first-light/shared-blocks",
    solution=num_shared_blocks,
    cases=[
        ([7, 8, 9, 1, 2], [7, 8, 9, 1, 3], 2),
        ([5, 8, 9, 1], [7, 8, 9, 1], 2),
        ([1, 2, 3], [1, 2, 3], 2),
        ([1, 2, 9, 4, 5, 6], [1, 2, 3, 4, 5, 6], 2),
        ([1, 2, 3, 4], [1, 2, 3, 4], 4),
        ([], [1, 2], 1),
        ([1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5], 2),
    ],
    num_shown=2,
    num_lines=4,
    mistakes=[
        lambda one, other, size: sum(
            one[i : i + size] == other[i : i + size] for i in range(0, min(len(one), len(other)) - size + 1, size)
        ),
        _counts_a_partial_one,
    ],
)


def _two_ask(before: str, question: str) -> Instance:

    task = (
        f"A is done. B and C are equal prompts of {len(question.split())} tokens, in blocks of 4, and share nothing "
        "with A. The engine merges late. Which block is at the head of the free queue after the step, to be taken "
        "next?"
    )
    return Instance(task, plays((before, 1), RUN, *[(question, 6)] * 2))


course_exercise(
    "first-light/next-free",
    play=_two_ask("Something else came first, and it is over", QUESTION),
    truth=lambda step: step.after.free_queue[0],
    another=lambda random: _two_ask(*phrases(random, random.randrange(3, 13), random.randrange(5, 20))),
    about="block",
    num_blocks=12,
    mistakes=[
        lambda step: step.first(BlockMerged).block_id,
        lambda step: step.before.free_queue[len(step.of_kind(BlockAllocated))],
    ],
)


def _then_a_third(question: str, more: str) -> Instance:

    more_words = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five"}[len(more.split())]
    task = (
        f"A and B have computed equal prompts of {len(question.split())} tokens. C arrives with the same tokens and "
        f"{more_words} more. How many tokens does the next step compute for all three together? Blocks have 4 "
        "tokens."
    )
    return Instance(task, plays(*[(question, 6)] * 2, 1, (f"{question} {more}", 6)))


def _num_computed(step: RevealedStep) -> int:
    return step.first(ForwardRan).num_tokens


course_exercise(
    "first-light/latecomer",
    play=_then_a_third(QUESTION, "answer is"),
    truth=_num_computed,
    another=lambda random: _then_a_third(*phrases(random, random.randrange(5, 17), random.randrange(1, 6))),
    about="number",
    num_blocks=16,
    mistakes=[
        lambda step: _num_computed(step) + step.of_kind(SlotsWritten)[-1].start,
        lambda step: len(step.before.requests[2].token_ids),
        lambda step: _num_computed(step) - 2,
    ],
)


class FreesForAll(BlockPool):
    """A pool that frees a block as soon as one request gives it back, even if other tables hold it."""

    def release(self, block_ids: Sequence[int]) -> tuple[list[int], list[int]]:
        """Free all these blocks, regardless of their ref counts."""
        for block_id in block_ids:
            self.blocks[block_id].ref_count = 1
        return super().release(block_ids)


def _two_and_a_stranger(lab: Lab) -> None:
    lab.add(QUESTION, max_tokens=2, ignore_eos=True)
    lab.add(QUESTION, max_tokens=5, ignore_eos=True)
    lab.step(2)
    stranger = "A third one asks something else at last and takes all that is free in the pool of blocks"
    lab.add(stranger, max_tokens=3, ignore_eos=True)
    lab.step(2)


course_exercise(
    "first-light/shared-free",
    broken=FreesForAll,
    play=_two_and_a_stranger,
    mistakes=[nth_event(BlockMerged, 0), nth_event(BlockFreed, -1), nth_event(BlockAllocated, -1)],
    num_blocks=8,
)


# -- questions in the text ---------------------------------------------------------------------------------------------


def _copies(task: str, copies: int, prompt: str) -> Instance:
    people = {2: "Two", 3: "Three"}[copies]
    return Instance(task.format(people=people, n=len(prompt.split())), plays(*[(prompt, 8)] * copies))


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


course_exercise(
    "first-light/middle",
    play=_copies(MIDDLE, 2, QUESTION),
    truth=_in_the_middle,
    another=_other_copies(MIDDLE),
    about="number",
    views=("pool", "tables"),
    mistakes=[_afterwards, _of_one],
    num_blocks=12,
)


course_exercise(
    "first-light/after",
    play=_copies(AFTER, 2, QUESTION),
    truth=_afterwards,
    another=_other_copies(AFTER),
    about="number",
    views=("pool", "tables"),
    mistakes=[_in_the_middle, _of_one],
    num_blocks=12,
)
