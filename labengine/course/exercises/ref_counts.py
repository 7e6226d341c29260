"""Exercises of the notebook "Late merge" on ref counts and the free queue: who counts, and what comes back."""

from __future__ import annotations

from collections.abc import Callable

from labengine.core.block import Block
from labengine.core.nano_vllm.block_pool import NanoBlockPool
from labengine.course.base import Exercise
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.predict_exercise import RevealedStep, in_step
from labengine.course.words import Make, course_exercise
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


@course_exercise("late-merge/one-short")
def one_short(make: Make) -> Exercise:
    """Find the first wrong event: a merge that the ref count misses."""
    return make(
        broken=CountsTwoAtMost,
        play=_three_alike_and_another,
        mistakes=[
            _last_of(BlockAllocated, 0),
            _last_of(BlockFreed, 0),
            nth_event(BlockMerged),
            nth_event(BlockMerged, 3),
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


@course_exercise("late-merge/reused-last")
def reused_last(make: Make) -> Exercise:
    """Predict: the end of the free queue, after a merge and after a request that shared."""
    return make(
        play=_one_token_two_and_more,
        truth=_reused_last,
        about="block",
        rounds=2,
        mistakes=[
            in_step(1, 10, _reused_last),
            in_step(1, 5, _reused_last),
            in_step(1, 0, _reused_last),
            in_step(1, 8, _reused_last),
            in_step(2, 4, _reused_last),
            in_step(2, 7, _reused_last),
            in_step(2, 9, _reused_last),
        ],
        edition="nano-vllm+243",
        num_blocks=12,
        block_size=4,
    )
