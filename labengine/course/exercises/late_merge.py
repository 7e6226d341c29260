"""Exercises of the notebook "Late merge"."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.block import Block
from labengine.core.merge_policy import MergePolicy
from labengine.core.nano_vllm.block_pool import NanoBlockPool
from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.predict_exercise import RevealedStep, in_step
from labengine.course.trial import RUN, plays
from labengine.course.words import course_exercise
from labengine.events import BlockAllocated, BlockFreed, BlockMerged
from labengine.lab import Lab


class KeepFirst(MergePolicy):
    """The first hasher's entry stays: keeping the last hasher's entry loses as many blocks."""

    def mapped_after(self, mapped: tuple[int, ...], block_id: int) -> tuple[int, ...]:
        """Return the mapped blocks, or this one if there are none."""
        return mapped or (block_id,)


course_exercise(
    "late-merge/keep-first",
    solution=KeepFirst,
    workloads=[
        plays(*[(range(9), 3)] * 2, RUN),
        plays((range(9), 5), (range(9), 1), 2, (range(100, 118), 1), 2, (range(9), 2), RUN),
        plays((range(5), 1), RUN),
    ],
    num_lines=1,
    mistakes=[
        lambda self, mapped, block_id: (block_id,),
        lambda self, mapped, block_id: (*mapped, block_id),
        lambda self, mapped, block_id: mapped,
    ],
    edition="nano-vllm",
    num_blocks=10,
)


def _num_used(step: RevealedStep) -> int:
    return step.after.num_used_blocks


course_exercise(
    "late-merge/num-used",
    play=plays((range(14), 6), (range(14), 6), (range(12), 6)),
    truth=_num_used,
    about="number",
    mistakes=[
        lambda step: step.after.num_used_blocks + len(step.of_kind(BlockMerged)),
        lambda step: _num_used(step) + 3,
        lambda step: _num_used(step) + 1,
        lambda step: _num_used(step) - 1,
    ],
    edition="nano-vllm+243",
    num_blocks=12,
)


def skips(self: TokenBudgetScheduler, request: Request, skipped: Sequence[Request]) -> bool:
    """Skip a request whose first block is being computed in this step: it finds the block in the next step."""
    first = request.token_ids[: self.config.hash_block_size]
    return any(other.num_computed_tokens == 0 and other.token_ids[: len(first)] == first for other in self.running)


def _skips_while_answered(self: TokenBudgetScheduler, request: Request, skipped: Sequence[Request]) -> bool:
    first = request.token_ids[: self.config.hash_block_size]
    return any(other.token_ids[: len(first)] == first for other in self.running)


_a_class_and_a_stranger = plays(*(([*range(32), 100 + number], 3) for number in range(4)), (range(500, 533), 3), RUN)
"""Four requests with the same beginning and different ends, and one that shares nothing."""


_four_strangers = plays(*((range(first, first + 33), 8) for first in (1000, 2000, 3000, 4000)), RUN)
"""Four requests with nothing in common, and answers long enough that all four overlap under any policy."""


def peak_and_steps(lab: Lab) -> float:
    return lab.stats().peak_used_blocks + lab.snapshot().step


course_exercise(
    "late-merge/wait-a-step",
    solution=skips,
    workloads=[plays(*[(range(65), 3)] * 8, RUN), _a_class_and_a_stranger, _four_strangers],
    score=peak_and_steps,
    goal=49,
    num_lines=2,
    mistakes=[
        lambda self, request, skipped: bool(self.running),
        _skips_while_answered,
        lambda self, request, skipped: any(other.num_computed_tokens == 0 for other in self.running),
        lambda self, request, skipped: any(other.token_ids == request.token_ids for other in self.running),
    ],
    num_blocks=60,
    block_size=16,
)


# -- ref counts and the free queue -------------------------------------------------------------------------------------


class CountsTwoAtMost(NanoBlockPool):
    """A pool that counts the second user of a block but no further one: the block is already shared."""

    def share(self, block: Block) -> None:
        """Count another user if there is only one so far."""
        if block.ref_count == 1:
            super().share(block)


course_exercise(
    "late-merge/one-short",
    broken=CountsTwoAtMost,
    play=plays((range(9), 2), (range(9), 3), (range(13), 6), 3, (range(100, 129), 3), 2),
    mistakes=[
        nth_event(BlockAllocated, -1, block_id=0),
        nth_event(BlockFreed, -1, block_id=0),
        nth_event(BlockMerged),
        nth_event(BlockMerged, 3),
    ],
    edition="nano-vllm+243",
    num_blocks=10,
)


_one_token_two_and_more = plays((range(14), 1), ([*range(8), *range(50, 56)], 2), (range(14), 6))
"""Fill the pool with three requests: A and C have the same prompt, B has a different end; A is done first, then B."""


course_exercise(
    "late-merge/reused-last",
    play=_one_token_two_and_more,
    truth=lambda step: step.after.free_queue[-1],
    about="block",
    rounds=2,
    mistakes=[
        *(in_step(1, block_id) for block_id in (10, 5, 0, 8)),
        *(in_step(2, block_id) for block_id in (4, 7, 9)),
    ],
    edition="nano-vllm+243",
    num_blocks=12,
)
