"""Exercises of the notebook "Late merge"."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.merge_policy import MergePolicy
from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.course.base import Exercise
from labengine.course.predict_exercise import RevealedStep
from labengine.course.words import Make, course_exercise
from labengine.events import BlockMerged
from labengine.lab import Lab


class KeepFirst(MergePolicy):
    """The first hasher's entry stays: as many blocks are lost as with the last hasher's."""

    def mapped_after(self, mapped: tuple[int, ...], block_id: int) -> tuple[int, ...]:
        """Return the blocks that are there, or this one if there are none."""
        return mapped or (block_id,)


class _KeepAll(MergePolicy):
    def mapped_after(self, mapped: tuple[int, ...], block_id: int) -> tuple[int, ...]:
        return (*mapped, block_id)


class _KeepLast(MergePolicy):
    def mapped_after(self, mapped: tuple[int, ...], block_id: int) -> tuple[int, ...]:
        return (block_id,)


class _KeepNone(MergePolicy):
    def mapped_after(self, mapped: tuple[int, ...], block_id: int) -> tuple[int, ...]:
        return mapped


def _twins(lab: Lab) -> None:
    for _ in range(2):
        lab.add(token_ids=range(9), max_tokens=3, ignore_eos=True)
    lab.run()


def _twins_and_follower(lab: Lab) -> None:
    lab.add(token_ids=range(9), max_tokens=5, ignore_eos=True)
    lab.add(token_ids=range(9), max_tokens=1, ignore_eos=True)
    lab.step(2)
    lab.add(token_ids=range(100, 118), max_tokens=1, ignore_eos=True)
    lab.step(2)
    lab.add(token_ids=range(9), max_tokens=2, ignore_eos=True)
    lab.run()


def _one_alone(lab: Lab) -> None:
    lab.add(token_ids=range(5), max_tokens=1, ignore_eos=True)
    lab.run()


@course_exercise("late-merge/keep-first")
def keep_first(make: Make) -> Exercise:
    """Fill in: the first hasher keeps the entry."""
    return make(
        solution=KeepFirst,
        workloads=[_twins, _twins_and_follower, _one_alone],
        num_lines=1,
        mistakes=[_KeepLast, _KeepAll, _KeepNone],
        edition="nano-vllm",
        num_blocks=10,
        block_size=4,
    )


def _two_and_their_beginning(lab: Lab) -> None:
    for num_tokens in (14, 14, 12):
        lab.add(token_ids=range(num_tokens), max_tokens=6, ignore_eos=True)


def _num_used(step: RevealedStep) -> int:
    return step.after.num_used_blocks


def _without_merges(step: RevealedStep) -> int:
    return step.after.num_used_blocks + len(step.of_kind(BlockMerged))


@course_exercise("late-merge/num-used")
def num_used(make: Make) -> Exercise:
    """Predict: the blocks in use after the merge."""
    return make(
        play=_two_and_their_beginning,
        truth=_num_used,
        about="number",
        mistakes=[
            _without_merges,
            lambda step: _num_used(step) + 3,
            lambda step: _num_used(step) + 1,
            lambda step: _num_used(step) - 1,
        ],
        edition="nano-vllm+243",
        num_blocks=12,
        block_size=4,
    )


def skips(self: TokenBudgetScheduler, request: Request, skipped: Sequence[Request]) -> bool:
    """Skip a request whose first block is being computed in this very step: it finds it in the next one."""
    first = request.token_ids[: self.config.hash_block_size]
    return any(other.num_computed_tokens == 0 and other.token_ids[: len(first)] == first for other in self.running)


def _skips_new_ones(self: TokenBudgetScheduler, request: Request, skipped: Sequence[Request]) -> bool:
    return bool(self.running)


def _skips_equal_ones(self: TokenBudgetScheduler, request: Request, skipped: Sequence[Request]) -> bool:
    return any(other.token_ids == request.token_ids for other in self.running)


def _skips_while_answered(self: TokenBudgetScheduler, request: Request, skipped: Sequence[Request]) -> bool:
    first = request.token_ids[: self.config.hash_block_size]
    return any(other.token_ids[: len(first)] == first for other in self.running)


for _mistake in (_skips_new_ones, _skips_equal_ones, _skips_while_answered):
    _mistake.__name__ = skips.__name__


def _skips_after_new_ones(self: TokenBudgetScheduler, request: Request, skipped: Sequence[Request]) -> bool:
    return any(other.num_computed_tokens == 0 for other in self.running)


_skips_after_new_ones.__name__ = skips.__name__


def _eight_equal(lab: Lab) -> None:
    for _ in range(8):
        lab.add(token_ids=range(65), max_tokens=3, ignore_eos=True)
    lab.run()


def _a_class_and_a_stranger(lab: Lab) -> None:
    """Four requests with one beginning, each with its own end, and one that shares nothing."""
    for number in range(4):
        lab.add(token_ids=[*range(32), 100 + number], max_tokens=3, ignore_eos=True)
    lab.add(token_ids=range(500, 533), max_tokens=3, ignore_eos=True)
    lab.run()


def _four_strangers(lab: Lab) -> None:
    """Four requests with nothing in common; their answers are long, so that all four overlap in any case."""
    for first in (1000, 2000, 3000, 4000):
        lab.add(token_ids=range(first, first + 33), max_tokens=8, ignore_eos=True)
    lab.run()


def peak_and_steps(lab: Lab) -> float:
    return lab.stats().peak_used_blocks + lab.snapshot().step


@course_exercise("late-merge/wait-a-step")
def wait_a_step(make: Make) -> Exercise:
    """Make it better: wait for somebody who computes the same."""
    return make(
        solution=skips,
        workloads=[_eight_equal, _a_class_and_a_stranger, _four_strangers],
        score=peak_and_steps,
        goal=49,
        num_lines=2,
        mistakes=[_skips_new_ones, _skips_while_answered, _skips_after_new_ones, _skips_equal_ones],
        num_blocks=60,
        block_size=16,
    )
