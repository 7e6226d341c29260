"""Exercises of the notebook "Late merge" on ref counts and the free queue: who counts, and what comes back."""

from __future__ import annotations

from collections.abc import Callable

from labengine.core.block import Block
from labengine.core.nano_vllm.block_pool import NanoBlockPool
from labengine.course.base import Exercise
from labengine.course.exercise import exercise
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.predict_exercise import RevealedStep, in_step
from labengine.events import BlockAllocated, BlockFreed, BlockMerged
from labengine.lab import Lab


class CountsTwoAtMost(NanoBlockPool):
    """A pool that counts the second user of a block, and nobody after that: the block is shared already."""

    def share(self, block: Block) -> None:
        """Count one more, if there is one user so far."""
        if block.ref_count == 1:
            super().share(block)


def _three_alike_and_another(lab: Lab) -> None:
    for num_tokens, max_tokens in ((9, 2), (9, 3), (13, 6)):
        lab.add(token_ids=range(num_tokens), max_tokens=max_tokens, ignore_eos=True)
    lab.step(3)
    lab.add(token_ids=range(100, 129), max_tokens=3, ignore_eos=True)
    lab.step(2)


def _last_of(kind: type[BlockAllocated | BlockFreed], block_id: int) -> Callable[[Lab], int]:
    """Return a function of a lab: the number of the last event of a kind about a block."""

    def number(lab: Lab) -> int:
        assert lab.timeline is not None
        events = enumerate(lab.timeline.events(), lab.timeline.num_dropped)
        return max(n for n, event in events if isinstance(event, kind) and event.block_id == block_id)

    return number


def one_short() -> Exercise:
    """Find the first wrong event: a merge that the ref count misses."""
    return exercise(
        "late-merge/one-short",
        "One method of this engine is wrong, and it is none of the merge's. A, B and C begin with the same nine tokens "
        "and are merged in step 1; A is done after step 2, B after step 3, and C goes on. D shares nothing with them. "
        "Yet in step 5, C reads D's keys and values. Every read before that is right. Which event is the first wrong "
        "one?",
        broken=CountsTwoAtMost,
        because=(
            "From here on #0 is in three tables, A's, B's and C's, and its ref count is still 2. When A and B "
            "are done it is free, and C still reads it."
        ),
        play=_three_alike_and_another,
        hints=[
            "Begin at the end: which blocks are in the tables of C and D? When did they become free, and whose table "
            "still had them?",
            "A block is free when its ref count is 0, and the ref count should be the number of tables that it is in. "
            "Count the tables with #0 after step 3, after step 2, and after step 1.",
            "B is merged first, then C. Which ref count does each of these merges leave behind?",
        ],
        mistakes=[
            (
                _last_of(BlockAllocated, 0),
                "D takes a block with ref count 0 off the queue, as it may. Who brought it there, while C's table "
                "still had it?",
            ),
            (
                _last_of(BlockFreed, 0),
                "B is done and gives back one reference, which is right. One was left, and there were two tables: B's "
                "and C's. Since when is the count one short?",
            ),
            (
                nth_event(BlockMerged),
                "After this merge #0 is in two tables, A's and B's, and its ref count is 2. Who is merged next?",
            ),
            (
                nth_event(BlockMerged, 3),
                "The count of #1 is one short from here on. The same happened to another block just before.",
            ),
        ],
        edition="nano-vllm+243",
        num_blocks=10,
        block_size=4,
    )


def _one_token_two_and_more(lab: Lab) -> None:
    """Fill the pool with three requests: A and C with the same prompt, B with another end; A is done first, then B."""
    for prompt, max_tokens in ((range(14), 1), ([*range(8), *range(50, 56)], 2), (range(14), 6)):
        lab.add(token_ids=prompt, max_tokens=max_tokens, ignore_eos=True)


def _reused_last(step: RevealedStep) -> int:
    return step.after.free_queue[-1]


def reused_last() -> Exercise:
    """Predict: the end of the free queue, after a merge and after a request that shared."""
    return exercise(
        "late-merge/reused-last",
        "The pool has 12 blocks of 4. A and C have the same prompt of 14 tokens; B's has their first 8, and then 6 "
        "others. A takes #0 to #3, B #4 to #7, C #8 to #11, and the late merge is that of the pull request. A's answer "
        "is one token, B's is two, C's is longer. Which block is *last* in the free queue after the next step, and "
        "which after the one that follows? Write down first, for each of the twelve, its ref count after the step.",
        play=_one_token_two_and_more,
        truth=_reused_last,
        about="block",
        rounds=2,
        hints=[
            "The step is booked request by request: A is hashed, done and freed (its last block first) before B is "
            "hashed, and B before C. Every freed block goes to the end of the queue at once.",
            "Step 1: when B is hashed, is there an equal block in the map, and is it alive? Then ask the same for each "
            "of C's three full blocks: which request's block is it equal to?",
            "Step 2: B is done. Which of its blocks does C's table have too? Their ref counts go from 2 to 1.",
        ],
        mistakes=[
            (
                in_step(1, 10, _reused_last),
                "C's third block is equal to A's third. But A is done, and a free block is no target: C keeps #10, and "
                "now the map leads to it.",
            ),
            (
                in_step(1, 5, _reused_last),
                "B's first two blocks are equal to A's, which are free already: B keeps them, and they become the "
                "blocks that the map leads to. Who is equal to *them*?",
            ),
            (
                in_step(1, 0, _reused_last),
                "A's blocks come into the queue before B and C are hashed. What is merged away comes behind them.",
            ),
            (in_step(1, 8, _reused_last), "#8 is the first copy that C gives back. It is not the only one."),
            (
                in_step(2, 4, _reused_last),
                "#4 and #5 have two users, B and C: the ref count goes to 1, and they stay in C's table. Only blocks "
                "with ref count 0 come into the queue.",
            ),
            (
                in_step(2, 7, _reused_last),
                "A request gives its blocks back from the end: #7 comes first, and another one behind.",
            ),
            (
                in_step(2, 9, _reused_last),
                "Something comes behind it: B is done in this step, and gives its blocks back.",
            ),
        ],
        edition="nano-vllm+243",
        num_blocks=12,
        block_size=4,
    )
