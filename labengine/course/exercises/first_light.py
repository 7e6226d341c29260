"""Exercises of the notebook "First light"."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from labengine.core.block_pool import BlockPool
from labengine.course.base import Exercise
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.phrases import phrases
from labengine.course.predict_exercise import Instance, RevealedStep
from labengine.course.words import Make, course_exercise
from labengine.events import BlockAllocated, BlockFreed, BlockMerged, ForwardRan, SlotsWritten
from labengine.lab import Lab

QUESTION = "Two people ask the very same question at the very same moment. The"


def peak_and_after(num_tokens: int, block_size: int, num_copies: int) -> tuple[int, int]:
    """Return the blocks in use in the middle of the step, and after it: only full blocks are merged."""
    num_full = num_tokens // block_size
    num_partial = 1 if num_tokens % block_size else 0
    return num_copies * (num_full + num_partial), num_full + num_copies * num_partial


def _merges_everything(num_tokens: int, block_size: int, num_copies: int) -> tuple[int, int]:
    num_blocks = -(-num_tokens // block_size)
    return num_copies * num_blocks, num_blocks


def _always_a_partial_one(num_tokens: int, block_size: int, num_copies: int) -> tuple[int, int]:
    num_full = num_tokens // block_size
    return num_copies * (num_full + 1), num_full + num_copies


def _always_a_partial_one_at_the_peak(num_tokens: int, block_size: int, num_copies: int) -> tuple[int, int]:
    return num_copies * (num_tokens // block_size + 1), peak_and_after(num_tokens, block_size, num_copies)[1]


def _shares_from_the_start(num_tokens: int, block_size: int, num_copies: int) -> tuple[int, int]:
    after = peak_and_after(num_tokens, block_size, num_copies)[1]
    return after, after


def _always_a_partial_one_after(num_tokens: int, block_size: int, num_copies: int) -> tuple[int, int]:
    return peak_and_after(num_tokens, block_size, num_copies)[0], num_tokens // block_size + num_copies


def _a_last_block_for_each_other(num_tokens: int, block_size: int, num_copies: int) -> tuple[int, int]:
    num_blocks = -(-num_tokens // block_size)
    return num_copies * num_blocks, num_blocks + num_copies - 1


def _adds_up_the_tokens(num_tokens: int, block_size: int, num_copies: int) -> tuple[int, int]:
    return -(-num_copies * num_tokens // block_size), peak_and_after(num_tokens, block_size, num_copies)[1]


@course_exercise("first-light/peak")
def peak(make: Make) -> Exercise:
    """Fill in: blocks in use inside the step and after it."""
    return make(
        solution=peak_and_after,
        cases=[(14, 4, 2), (14, 16, 2), (12, 4, 3), (3, 4, 4), (801, 256, 2), (64, 16, 8), (5, 1, 2)],
        num_shown=2,
        num_lines=3,
        mistakes=[
            _merges_everything,
            [
                _always_a_partial_one,
                _always_a_partial_one_at_the_peak,
                _always_a_partial_one_after,
                _a_last_block_for_each_other,
            ],
            _adds_up_the_tokens,
            _shares_from_the_start,
        ],
    )


def num_shared_blocks(one: Sequence[int], other: Sequence[int], block_size: int) -> int:
    """Return the full blocks of equal tokens that have equal tokens before them, too."""
    num_equal = 0
    while num_equal < min(len(one), len(other)) and one[num_equal] == other[num_equal]:
        num_equal += 1
    return num_equal // block_size


def _blocks(token_ids: Sequence[int], block_size: int) -> list[tuple[int, ...]]:
    starts = range(0, len(token_ids) - block_size + 1, block_size)
    return [tuple(token_ids[start : start + block_size]) for start in starts]


def _compares_blocks_alone(one: Sequence[int], other: Sequence[int], block_size: int) -> int:
    pairs = zip(_blocks(one, block_size), _blocks(other, block_size), strict=False)
    return sum(mine == theirs for mine, theirs in pairs)


def _counts_a_partial_one(one: Sequence[int], other: Sequence[int], block_size: int) -> int:
    num_equal = 0
    while num_equal < min(len(one), len(other)) and one[num_equal] == other[num_equal]:
        num_equal += 1
    return -(-num_equal // block_size)


@course_exercise("first-light/shared-blocks")
def shared_blocks(make: Make) -> Exercise:
    """Fill in: the blocks that two prompts can share."""
    return make(
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
        mistakes=[_compares_blocks_alone, _counts_a_partial_one],
    )


def _two_ask(before: str, question: str) -> Instance:
    def play(lab: Lab) -> None:
        lab.add(before, max_tokens=1)
        lab.run()
        for _ in range(2):
            lab.add(question, max_tokens=6)

    task = (
        f"A is done. B and C are equal prompts of {len(question.split())} tokens, which share nothing with A, in "
        "blocks of 4, and the engine merges late. Which block is at the head of the free queue after the step, to be "
        "taken next?"
    )
    return Instance(task, play)


def _two_others_ask(random: Random) -> Instance:
    return _two_ask(*phrases(random, random.randrange(3, 13), random.randrange(5, 20)))


def _head_after(step: RevealedStep) -> int:
    return step.after.free_queue[0]


def _first_copy(step: RevealedStep) -> int:
    return step.first(BlockMerged).block_id


def _head_if_not_merged(step: RevealedStep) -> int:
    return step.before.free_queue[len(step.of_kind(BlockAllocated))]


@course_exercise("first-light/next-free")
def next_free(make: Make) -> Exercise:
    """Predict: the head of the free queue after a merge."""
    first = _two_ask("Something else came first, and it is over", QUESTION)
    return make(
        task=first.task,
        play=first.play,
        truth=_head_after,
        another=_two_others_ask,
        about="block",
        num_blocks=12,
        block_size=4,
        mistakes=[_first_copy, _head_if_not_merged],
    )


def _then_a_third(question: str, more: str) -> Instance:
    def play(lab: Lab) -> None:
        for _ in range(2):
            lab.add(question, max_tokens=6)
        lab.step()
        lab.add(f"{question} {more}", max_tokens=6)

    more_words = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five"}[len(more.split())]
    task = (
        f"A and B have computed equal prompts of {len(question.split())} tokens. C arrives with the same tokens and "
        f"{more_words} more. How many tokens does the next step compute for all three together? Blocks have 4 "
        "tokens."
    )
    return Instance(task, play)


def _num_computed(step: RevealedStep) -> int:
    return step.first(ForwardRan).num_tokens


def _complete_prompt(step: RevealedStep) -> int:
    written = step.of_kind(SlotsWritten)
    return _num_computed(step) + written[-1].start


def _without_decodes(step: RevealedStep) -> int:
    return _num_computed(step) - 2


def _all_of_c(step: RevealedStep) -> int:
    return len(step.before.requests[2].token_ids)


@course_exercise("first-light/latecomer")
def latecomer(make: Make) -> Exercise:
    """Predict: the tokens that the next step computes."""
    first = _then_a_third(QUESTION, "answer is")
    return make(
        task=first.task,
        play=first.play,
        truth=_num_computed,
        another=lambda random: _then_a_third(*phrases(random, random.randrange(5, 17), random.randrange(1, 6))),
        about="number",
        num_blocks=16,
        block_size=4,
        mistakes=[_complete_prompt, _all_of_c, _without_decodes],
    )


class FreesForAll(BlockPool):
    """A pool that frees a block with the first request that gives it back, whoever else has it in a table."""

    def release(self, block_ids: Sequence[int]) -> tuple[list[int], list[int]]:
        """Free all these blocks, whatever their ref counts."""
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


@course_exercise("first-light/shared-free")
def shared_free(make: Make) -> Exercise:
    """Find the first wrong event: a block is freed while another request has it in its table."""
    return make(
        broken=FreesForAll,
        play=_two_and_a_stranger,
        mistakes=[nth_event(BlockMerged, 0), nth_event(BlockFreed, -1), nth_event(BlockAllocated, -1)],
        num_blocks=8,
        block_size=4,
    )
