"""Exercises of the notebook "States instead of keys"."""

from __future__ import annotations

from typing import Any

from labengine.config import GroupSpec
from labengine.core.request import Request
from labengine.core.state_group import StateGroup
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.trial import RUN, plays
from labengine.course.words import course_exercise
from labengine.events import BlockAllocated, PrefixHit, StateAdvanced, StateCopied
from labengine.lab import Lab

PROMPT = range(100, 122)
"""22 tokens: five blocks of 4, and 2 more."""
STATE_GROUP = 1


def _settings(**settings: Any) -> dict[str, Any]:
    """Return the settings of the notebook's lab: attention and states, both in blocks of 4."""
    return {"num_blocks": 24, "groups": (GroupSpec(4), GroupSpec(4, "state")), **settings}


def chunks(num_tokens: int, block_size: int, budget: int) -> list[int]:
    """Return the tokens of each chunk of a prompt. budget: tokens per step, at least block_size."""
    last = (num_tokens - 1) // block_size * block_size
    start, sizes = 0, []
    while start < num_tokens:
        end = min(start + budget, num_tokens)
        if end < num_tokens:
            end -= end % block_size
        if start < last < end:
            end = last
        sizes.append(end - start)
        start = end
    return sizes


def _whole_budgets(num_tokens: int, block_size: int, budget: int) -> list[int]:
    return [min(budget, num_tokens - start) for start in range(0, num_tokens, budget)]


course_exercise(
    "states/chunks",
    solution=chunks,
    cases=[(22, 4, 12), (20, 4, 1000), (3, 4, 1000), (22, 4, 11), (21, 8, 9), (16, 16, 16), (1, 4, 8), (33, 8, 16)],
    num_shown=3,
    num_lines=9,
    mistakes=[
        _whole_budgets,
        lambda n, size, budget: _whole_budgets(n, size, budget // size * size),
        lambda n, size, budget: chunks(n, size, budget) if n % size else chunks(n + 1, size, budget)[:-1],
    ],
)


course_exercise(
    "states/held",
    play=plays((PROMPT, 8), 1),
    truth=lambda step: sum(block_id >= 0 for block_id in step.after.requests[0].block_tables[STATE_GROUP]),
    about="number",
    rounds=3,
    mistakes=[lambda step: len(step.after.requests[0].block_tables[STATE_GROUP]), lambda step: 3],
    **_settings(max_num_batched_tokens=12),
)


course_exercise(
    "states/hit",
    play=plays((PROMPT, 2), RUN, (PROMPT, 2)),
    truth=lambda step: step.first(PrefixHit).num_tokens,
    about="number",
    mistakes=[20, 22, 24],
    **_settings(groups=(GroupSpec(4), GroupSpec(8, "state"))),
)


class EndsAtEachBlock(StateGroup):
    """A group that leaves a state at the end of every block."""

    def chunk_end(self, request: Request, start: int, end: int) -> int:
        """Return the end of the block in which the chunk begins, or the chunk's own end if that comes first."""
        return min(end, (start // self.block_size + 1) * self.block_size)


def one_beginning(lab: Lab) -> None:
    """Four prompts, one after the other, that share ten tokens."""
    for number in range(1, 5):
        own = range(100 * number, 100 * number + 4)
        lab.add(token_ids=[*range(1, 11), *own], max_tokens=2, ignore_eos=True)
        lab.run()


def two_beginnings(lab: Lab) -> None:
    """Prompts that differ after 6 tokens and after 17."""
    for number, num_shared in enumerate((6, 6, 17, 17), 1):
        own = range(100 * number, 100 * number + 22 - num_shared)
        lab.add(token_ids=[*range(1, num_shared + 1), *own], max_tokens=2, ignore_eos=True)
        lab.run()


course_exercise(
    "states/checkpoints",
    solution=EndsAtEachBlock,
    workloads=[one_beginning, two_beginnings],
    score="tokens computed",
    goal=104,
    num_lines=1,
    mistakes=[
        StateGroup,
        lambda self, request, start, end: end,
        lambda self, request, start, end: min(end, (start // (2 * self.block_size) + 1) * 2 * self.block_size),
    ],
    **_settings(num_blocks=64),
)


class WritesWhereItBegan(StateGroup):
    """A group that looks up the block of the running state by the chunk's first token."""

    def slots(self, request: Request, start: int, end: int) -> tuple[tuple[int, int, int], ...]:
        """Return the block of the entry that held the state before the chunk."""
        return ((request.block_tables[self.index][(start - 1) // self.block_size], 0, 1),)


course_exercise(
    "states/first-wrong",
    broken=WritesWhereItBegan,
    first=nth_event(StateAdvanced, 1),
    play=plays((PROMPT, 4), 4),
    mistakes=[
        nth_event(StateAdvanced),
        nth_event(StateCopied),
        nth_event(StateAdvanced, 2),
        nth_event(BlockAllocated, 6),
    ],
    **_settings(max_num_batched_tokens=12),
)
