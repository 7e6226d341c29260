"""Exercises of the notebook "First light"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from labengine.core.block_pool import BlockPool
from labengine.course.base import Exercise
from labengine.course.exercise import exercise
from labengine.course.exercises.first_light_guesses import GUESSES
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.phrases import phrases
from labengine.course.predict_exercise import Instance, RevealedStep
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


_NO_PARTIAL_ONE = "Where the prompt fills its last block exactly, there is no partly filled one."


def peak() -> Exercise:
    """Fill in: blocks in use inside the step and after it."""
    return exercise(
        "first-light/peak",
        "`num_copies` equal prompts of `num_tokens` tokens are computed in one step, with a late merge. Return two "
        "numbers: the blocks in use in the middle of the step, and those after it.",
        solution=peak_and_after,
        cases=[(14, 4, 2), (14, 16, 2), (12, 4, 3), (3, 4, 4), (801, 256, 2), (64, 16, 8), (5, 1, 2)],
        num_shown=2,
        num_lines=3,
        hints=[
            "In the middle of the step nothing is merged yet: each copy has its own blocks.",
            "After it the full blocks are there once. What about the last block of each copy, if it is not full?",
        ],
        mistakes=[
            (
                _merges_everything,
                "Only full blocks have a hash. A partly filled block stays with its request, which will write into it.",
            ),
            (_always_a_partial_one, _NO_PARTIAL_ONE),
            (_always_a_partial_one_at_the_peak, _NO_PARTIAL_ONE),
            (_always_a_partial_one_after, _NO_PARTIAL_ONE),
            (_a_last_block_for_each_other, _NO_PARTIAL_ONE),
            (
                _adds_up_the_tokens,
                "Each copy has blocks of its own: round up the tokens of one, and then multiply.",
            ),
            (
                _shares_from_the_start,
                "The merge comes after the computing: in the middle of the step each copy has blocks of its own.",
            ),
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


def shared_blocks() -> Exercise:
    """Fill in: the blocks that two prompts can share."""
    return exercise(
        "first-light/shared-blocks",
        "Two prompts, as lists of token ids, are computed in blocks of `block_size`. How many blocks can the two "
        "requests share after the step?",
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
        hints=[
            "A block's hash covers its own tokens and all tokens before it. What does one different token spoil?",
            "Count how many tokens are equal from the start. How many full blocks do these make?",
        ],
        mistakes=[
            (
                _compares_blocks_alone,
                "Equal tokens after a different beginning have other keys and values, and another hash.",
            ),
            (_counts_a_partial_one, "The block in which the prompts part, or one that is not full, cannot be shared."),
        ],
    )


def _two_ask(before: str, question: str) -> Instance:
    def play(lab: Lab) -> None:
        lab.add(before, max_tokens=1)
        lab.run()
        for _ in range(2):
            lab.add(question, max_tokens=6)

    task = (
        f"A is done. B and C are equal prompts of {len(question.split())} tokens, which share nothing with A, in "
        "blocks of 4, and there is a late merge. Which block is at the head of the free queue after the step: the one "
        "that is taken next?"
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


def next_free() -> Exercise:
    """Predict: the head of the free queue after a merge."""
    first = _two_ask("Something else came first, and it is over", QUESTION)
    return exercise(
        "first-light/next-free",
        first.task,
        play=first.play,
        truth=_head_after,
        another=_two_others_ask,
        about="block",
        num_blocks=12,
        block_size=4,
        hints=[
            "B takes its blocks from the head of the queue, then C takes as many. The full ones of C are freed again.",
            "The copies are freed one after the other, and each goes to the head of the queue.",
        ],
        mistakes=[
            (_first_copy, "That copy is freed first. The next copy then goes in front of it."),
            (
                _head_if_not_merged,
                "That would be the head if nothing were merged. The copies go to the head of the queue, before it.",
            ),
        ],
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
        f"{more_words} more. How many tokens does the next step compute, for all three together? (Blocks have 4 "
        "tokens.)"
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


def latecomer() -> Exercise:
    """Predict: the tokens that the next step computes."""
    first = _then_a_third(QUESTION, "answer is")
    return exercise(
        "first-light/latecomer",
        first.task,
        play=first.play,
        truth=_num_computed,
        another=lambda random: _then_a_third(*phrases(random, random.randrange(5, 17), random.randrange(1, 6))),
        about="number",
        num_blocks=16,
        block_size=4,
        hints=[
            "A and B are being answered: one token each.",
            "C finds full blocks only. How many of its tokens are in them?",
        ],
        mistakes=[
            (_complete_prompt, "C need not compute what it finds in the prefix map."),
            (
                _all_of_c,
                "That is C's whole prompt. C need not compute what it finds in the prefix map; and A and B go on.",
            ),
            (_without_decodes, "A and B go on in the same step: each of them computes one token, too."),
        ],
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


def shared_free() -> Exercise:
    """Find the first wrong event: a block is freed while another request has it in its table."""
    return exercise(
        "first-light/shared-free",
        "One method of this engine is wrong. A and B ask the same, A is done after two tokens, B goes on, and C asks "
        "something else. In step 3 B reads keys and values of C. Which event is the first that is wrong?",
        broken=FreesForAll,
        because=(
            "#2 is in B's table, too: its ref count should go from 2 to 1, and goes to 0. So it is queued, and "
            "C gets it."
        ),
        play=_two_and_a_stranger,
        hints=[
            "Which block do B and C both have in their tables? How did C come by it?",
            "When A is done, it gives its blocks back. Which of them has nobody but A?",
        ],
        mistakes=[
            (
                nth_event(BlockMerged, 0),
                "The merge is right: both blocks are full and equal. From here on two tables name the block that is "
                "kept, and its ref count is 2.",
            ),
            (
                nth_event(BlockFreed, -1),
                "This block was A's alone, so it is free when A is done. What of the ones that were given back before?",
            ),
            (
                nth_event(BlockAllocated, -1),
                "C takes a block from the head of the free queue, as it may. Why is that block in the queue?",
            ),
        ],
        num_blocks=8,
        block_size=4,
    )


EXERCISES: Mapping[str, Callable[[], Exercise]] = {
    **GUESSES,
    "first-light/peak": peak,
    "first-light/next-free": next_free,
    "first-light/latecomer": latecomer,
    "first-light/shared-blocks": shared_blocks,
    "first-light/shared-free": shared_free,
}
