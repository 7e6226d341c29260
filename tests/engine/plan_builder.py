"""Step plans by hand: requests that deal themselves shuffled blocks and are computed in any chunks, no scheduler."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from labengine.config import SamplingParams
from labengine.core.step_plan import ScheduledRequest, SlotRun, StepPlan

GARBAGE = (-1, 10**9)
"""What stands behind a table's used entries: nobody may look there."""


@dataclass
class HandMadeRequest:
    """A request whose whole table is dealt beforehand."""

    request_id: int
    token_ids: list[int]
    table: tuple[int, ...]
    block_size: int
    num_computed: int = 0
    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int = 0

    def take(self, num_tokens: int, *, samples: bool = True) -> ScheduledRequest:
        """Compute the next `num_tokens` (or what is left) in a step."""
        start, end = self.num_computed, min(self.num_computed + num_tokens, len(self.token_ids))
        self.num_computed = end
        used = -(-end // self.block_size)
        return ScheduledRequest(
            request_id=self.request_id,
            token_ids=tuple(self.token_ids[start:end]),
            start=start,
            block_tables=((*self.table[:used], *GARBAGE),),
            slot_runs=(self.runs(start, end),),
            is_prefill=num_tokens > 1,
            samples=samples,
            sampling=self.sampling,
            seed=self.seed,
        )

    def runs(self, start: int, end: int) -> tuple[SlotRun, ...]:
        """Positions [start, end) block by block, by the book: position p lies at table[p // size], offset p % size."""
        cuts = [start, *range((start // self.block_size + 1) * self.block_size, end, self.block_size), end]
        return tuple(
            (self.table[first // self.block_size], first % self.block_size, last - first)
            for first, last in pairwise(cuts)
            if last > first
        )


class Dealer:
    """Deals the blocks of a pool, shuffled, each once."""

    def __init__(self, num_blocks: int, block_size: int, seed: int = 0) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._free = list(range(num_blocks))
        self._num_requests = 0
        Random(seed).shuffle(self._free)

    def request(self, token_ids: list[int], sampling: SamplingParams | None = None, seed: int = 0) -> HandMadeRequest:
        """A new request with blocks for all its tokens."""
        num_blocks = -(-len(token_ids) // self.block_size)
        table = tuple(self._free.pop() for _ in range(num_blocks))
        self._num_requests += 1
        return HandMadeRequest(
            self._num_requests - 1, token_ids, table, self.block_size, sampling=sampling or SamplingParams(), seed=seed
        )


def plan_of(*scheduled: ScheduledRequest) -> StepPlan:
    return StepPlan(tuple(scheduled))
