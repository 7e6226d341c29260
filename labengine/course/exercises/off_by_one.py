"""Exercises of the notebook "The off-by-one that was none"."""

from __future__ import annotations

from collections.abc import Callable

from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.request import Request
from labengine.course.base import Exercise
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.predict_exercise import RevealedStep
from labengine.course.words import Make, course_exercise
from labengine.events import BlockAllocated, SlotsWritten
from labengine.lab import Lab
from labengine.scenarios import bug


def num_missing_blocks(self: KVCacheGroup, request: Request, num_tokens: int) -> int:
    """Return how many blocks the table lacks for num_tokens tokens: the newest one is written in this step."""
    num_needed = -(-num_tokens // self.block_size)
    return num_needed - len(request.block_tables[self.index])


def _one_early(self: KVCacheGroup, request: Request, num_tokens: int) -> int:
    return num_tokens // self.block_size + 1 - len(request.block_tables[self.index])


def _one_late(self: KVCacheGroup, request: Request, num_tokens: int) -> int:
    return num_tokens // self.block_size - len(request.block_tables[self.index])


def _all_anew(self: KVCacheGroup, request: Request, num_tokens: int) -> int:
    return -(-num_tokens // self.block_size)


def _at_remainder_1(self: KVCacheGroup, request: Request, num_tokens: int) -> int:
    return int(num_tokens % self.block_size == 1)


def _at_remainder_0(self: KVCacheGroup, request: Request, num_tokens: int) -> int:
    return int(num_tokens % self.block_size == 0)


for _mistake in (_one_early, _one_late, _all_anew, _at_remainder_1, _at_remainder_0):
    _mistake.__name__ = num_missing_blocks.__name__


def _grow(num_prompt_tokens: int, max_tokens: int) -> Callable[[Lab], None]:
    def play(lab: Lab) -> None:
        lab.add(token_ids=range(num_prompt_tokens), max_tokens=max_tokens, ignore_eos=True)
        lab.run()

    return play


@course_exercise("off-by-one/missing-blocks")
def missing_blocks(make: Make) -> Exercise:
    """Fill in: when a request needs another block."""
    return make(
        solution=num_missing_blocks,
        workloads=[_grow(3, 2), _grow(3, 7), _grow(4, 1), _grow(8, 9)],
        num_lines=2,
        mistakes=[_one_early, _one_late, _at_remainder_1, _at_remainder_0, _all_anew],
        num_blocks=12,
        block_size=4,
    )


@course_exercise("off-by-one/first-wrong")
def first_wrong(make: Make) -> Exercise:
    """Find the first wrong event: the engine with the proposed rule."""
    return make(
        broken=bug("nano-vllm-71").column("PR 71").parts,
        play=_grow(6, 6),
        mistakes=[nth_event(BlockAllocated, 2)],
        num_blocks=12,
        block_size=4,
    )


def _two_before_their_first_decode(lab: Lab) -> None:
    for token_ids in ([1, 2, 3], [4, 5, 6]):
        lab.add(token_ids=token_ids, max_tokens=12, ignore_eos=True)
    lab.step()


def _block_written_by_b(step: RevealedStep) -> int:
    return next(event.runs[0][0] for event in step.of_kind(SlotsWritten) if event.request_id == 1)


@course_exercise("off-by-one/wrong-slot")
def wrong_slot(make: Make) -> Exercise:
    """Predict: the block that position 3 is written to, with the proposed rule."""
    return make(
        play=_two_before_their_first_decode,
        truth=_block_written_by_b,
        about="block",
        mistakes=[1, 2],
        parts=bug("nano-vllm-71").column("PR 71").parts,
        num_blocks=8,
        block_size=4,
    )


def _num_entries(step: RevealedStep) -> int:
    return len(step.after.requests[0].block_tables[0])


def _by_known_tokens(step: RevealedStep) -> int:
    return -(-len(step.after.requests[0].token_ids) // 3)


def _before_its_first_decode(lab: Lab) -> None:
    lab.add(token_ids=range(5), max_tokens=12, ignore_eos=True)
    lab.step()


@course_exercise("off-by-one/num-blocks")
def num_blocks(make: Make) -> Exercise:
    """Predict: the length of the table after each of three steps."""
    return make(
        play=_before_its_first_decode,
        truth=_num_entries,
        about="number",
        rounds=2,
        mistakes=[_by_known_tokens],
        edition="nano-vllm-2025-07",
        num_blocks=8,
        block_size=3,
    )


def first_bad_length(remainder: int, num_prompt_tokens: int, block_size: int) -> int | None:
    """Grow a request by two blocks, token by token, and return the first length with a wrong number of blocks."""
    num_blocks = -(-num_prompt_tokens // block_size)
    for length in range(num_prompt_tokens + 1, num_prompt_tokens + 2 * block_size + 1):
        if length % block_size == remainder:
            num_blocks += 1
        if num_blocks != -(-length // block_size):
            return length
    return None


def _tries_one_length(remainder: int, num_prompt_tokens: int, block_size: int) -> int | None:
    length = num_prompt_tokens + 1
    is_appended, is_needed = length % block_size == remainder, length % block_size == 1
    return length if is_appended != is_needed else None


def _sees_only_a_lack(remainder: int, num_prompt_tokens: int, block_size: int) -> int | None:
    num_blocks = -(-num_prompt_tokens // block_size)
    for length in range(num_prompt_tokens + 1, num_prompt_tokens + 2 * block_size + 1):
        num_blocks += length % block_size == remainder
        if num_blocks < -(-length // block_size):
            return length
    return None


def _appends_for_the_prompt(remainder: int, num_prompt_tokens: int, block_size: int) -> int | None:
    num_blocks = -(-num_prompt_tokens // block_size)
    for length in range(num_prompt_tokens, num_prompt_tokens + 2 * block_size + 1):
        num_blocks += length % block_size == remainder
        if num_blocks != -(-length // block_size):
            return length
    return None


@course_exercise("off-by-one/experiment")
def experiment(make: Make) -> Exercise:
    """Fill in: the experiment that judges a rule."""
    return make(
        solution=first_bad_length,
        cases=[(1, 3, 4), (0, 3, 4), (0, 256, 256), (1, 256, 256), (2, 3, 4), (0, 5, 3), (3, 6, 4)],
        num_shown=3,
        num_lines=7,
        mistakes=[_tries_one_length, _appends_for_the_prompt, _sees_only_a_lack],
    )
