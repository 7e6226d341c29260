"""Exercises of the notebook "The off-by-one that was none"."""

from __future__ import annotations

from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.request import Request
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.trial import RUN, plays
from labengine.course.words import course_exercise
from labengine.events import BlockAllocated, SlotsWritten
from labengine.scenarios import bug


def num_missing_blocks(self: KVCacheGroup, request: Request, num_tokens: int) -> int:
    """Return how many blocks the table lacks for num_tokens tokens: this step writes the newest one, too."""
    num_needed = -(-num_tokens // self.block_size)
    return num_needed - len(request.block_tables[self.index])


course_exercise(
    "off-by-one/missing-blocks",
    solution=num_missing_blocks,
    workloads=[plays((range(size), more), RUN) for size, more in ((3, 2), (3, 7), (4, 1), (8, 9))],
    num_lines=2,
    mistakes=[
        lambda self, request, n: n // self.block_size + 1 - len(request.block_tables[self.index]),
        lambda self, request, n: n // self.block_size - len(request.block_tables[self.index]),
        lambda self, request, num_tokens: int(num_tokens % self.block_size == 1),
        lambda self, request, num_tokens: int(num_tokens % self.block_size == 0),
        lambda self, request, num_tokens: -(-num_tokens // self.block_size),
    ],
    num_blocks=12,
)


course_exercise(
    "off-by-one/first-wrong",
    broken=bug("nano-vllm-71").column("PR 71").all_parts,
    play=plays((range(6), 6), RUN),
    mistakes=[nth_event(BlockAllocated, 2)],
    num_blocks=12,
)


course_exercise(
    "off-by-one/wrong-slot",
    play=plays(([1, 2, 3], 12), ([4, 5, 6], 12), 1),
    truth=lambda step: next(event.runs[0][0] for event in step.of_kind(SlotsWritten) if event.request_id == 1),
    about="block",
    mistakes=[1, 2],
    parts=bug("nano-vllm-71").column("PR 71").all_parts,
    num_blocks=8,
)


course_exercise(
    "off-by-one/num-blocks",
    play=plays((range(5), 12), 1),
    truth=lambda step: len(step.after.requests[0].block_tables[0]),
    about="number",
    rounds=2,
    mistakes=[lambda step: -(-len(step.after.requests[0].token_ids) // 3)],
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


course_exercise(
    "off-by-one/experiment",
    solution=first_bad_length,
    cases=[(1, 3, 4), (0, 3, 4), (0, 256, 256), (1, 256, 256), (2, 3, 4), (0, 5, 3), (3, 6, 4)],
    num_shown=3,
    num_lines=7,
    mistakes=[
        lambda remainder, n, size: n + 1 if ((n + 1) % size == remainder) != ((n + 1) % size == 1) else None,
        _appends_for_the_prompt,
        _sees_only_a_lack,
    ],
)
