"""Exercises of the notebook "Late merge"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from labengine.core.merge_policy import MergePolicy
from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.course.base import Exercise
from labengine.course.exercise import exercise
from labengine.course.exercises.ref_counts import one_short, reused_last
from labengine.course.predict_exercise import RevealedStep
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


def keep_first() -> Exercise:
    """Fill in: the first hasher keeps the entry."""
    return exercise(
        "late-merge/keep-first",
        "Be fair to the overwriting: two blocks get the same hash, and only one can have the entry of the map. Write a "
        "`MergePolicy` whose `mapped_after(self, mapped, block_id)` keeps the *first* hasher's. `mapped` are the "
        "blocks that the map has under this hash so far (an empty tuple for none; vLLM may have several); return a "
        "tuple of those that it has afterwards. (As many blocks are lost as before: now the second hasher's.)",
        solution=KeepFirst,
        workloads=[_twins, _twins_and_follower, _one_alone],
        num_lines=1,
        hints=[
            "There are two cases: `mapped` holds a block already, or it is empty.",
            "In Python, `a or b` is `b` where `a` is empty.",
        ],
        mistakes=[
            (
                _KeepLast,
                "This is the overwriting that the report is about: the last hasher wins, and the first is lost.",
            ),
            (
                _KeepAll,
                "Now the map holds both blocks, as in vLLM: none is lost. Asked for is one entry, the first one's.",
            ),
            (_KeepNone, "The map stays empty for ever: somebody has to be the first."),
        ],
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


def num_used() -> Exercise:
    """Predict: the blocks in use after the merge."""
    return exercise(
        "late-merge/num-used",
        "A and B have equal prompts of 14 tokens, C's prompt is the first 12 of them; blocks of 4, and a late merge. "
        "All three are computed in the next step. How many blocks are used after it?",
        play=_two_and_their_beginning,
        truth=_num_used,
        about="number",
        hints=[
            "How many blocks does each of them take at first, and how many of these are full?",
            "The full blocks of B and C are merged into A's. What has C left of its own?",
        ],
        mistakes=[
            (_without_merges, "That is the peak, inside the step. At its end the full copies go back to the pool."),
            (
                lambda step: _num_used(step) + 3,
                "That is with one of B and C merged. Both have three full blocks that are equal to A's.",
            ),
            (
                lambda step: _num_used(step) + 1,
                "A and B have a block each that is not full. C has none: its 12 tokens fill three blocks.",
            ),
            (
                lambda step: _num_used(step) - 1,
                "The partial blocks stay apart: they have no hash, and each request goes on writing into its own.",
            ),
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


def wait_a_step() -> Exercise:
    """Make it better: wait for somebody who computes the same."""
    return exercise(
        "late-merge/wait-a-step",
        "A late merge gives back neither the peak nor the compute. A scheduler can give both: somebody who waits a "
        "step finds what another one computes now. Write `skips(self, request, skipped)`: return True to let a waiting "
        "request wait in this step. `self.running` are the requests that were admitted, in this step too; a request "
        "has `token_ids` and `num_computed_tokens` (0 in the step in which its prompt is computed). `skipped`, the "
        "requests that wait in this step already, is not needed; `self.config.hash_block_size` is the size of a block. "
        "The score is the peak of used blocks plus the steps, for eight equal requests, for five of which four "
        "share a beginning, and for four that share nothing: who waits for nothing loses.",
        solution=skips,
        workloads=[_eight_equal, _a_class_and_a_stranger, _four_strangers],
        score=peak_and_steps,
        goal=49,
        num_lines=2,
        hints=[
            "Who should wait? A request whose first block somebody else is computing in this step.",
            "Compare the first block of tokens: that of `request`, and of each running one that has computed nothing.",
        ],
        mistakes=[
            (
                _skips_new_ones,
                "Now everybody waits until nobody runs: the peak is low, and the steps are many.",
            ),
            (
                _skips_while_answered,
                "Whoever is being answered has its first blocks in the prefix map already: there is nothing to wait "
                "for any more. Who has computed nothing yet?",
            ),
            (_skips_after_new_ones, "This request shares nothing with the others, and waited."),
            (
                _skips_equal_ones,
                "Only equal prompts wait; those that share a beginning still compute it each for themselves. And while "
                "an equal one is answered, there is nothing to wait for any more.",
            ),
        ],
        num_blocks=60,
        block_size=16,
    )


EXERCISES: Mapping[str, Callable[[], Exercise]] = {
    "late-merge/num-used": num_used,
    "late-merge/keep-first": keep_first,
    "late-merge/one-short": one_short,
    "late-merge/reused-last": reused_last,
    "late-merge/wait-a-step": wait_a_step,
}
