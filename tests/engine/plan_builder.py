"""Step plans by hand: requests that deal themselves shuffled blocks and are computed in any chunks, no scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from labengine.config import GroupSpec, SamplingParams
from labengine.core.step_plan import ScheduledRequest, SlotRun, StepPlan

GARBAGE = (-1, 10**9)
"""What stands in the entries that nobody may look at: before the window, and behind the used ones."""

Table = tuple[int, ...]


@dataclass
class HandMadeRequest:
    """A request whose whole tables, one per group, are dealt beforehand."""

    request_id: int
    token_ids: list[int]
    tables: tuple[Table, ...]
    groups: tuple[GroupSpec, ...]
    num_computed: int = 0
    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int = 0

    @property
    def table(self) -> Table:
        """Of the first group."""
        return self.tables[0]

    def take(self, num_tokens: int, *, samples: bool = True) -> ScheduledRequest:
        """Compute the next `num_tokens` (or the rest) in a step."""
        start, end = self.num_computed, min(self.num_computed + num_tokens, len(self.token_ids))
        self.num_computed = end
        dealt = list(zip(self.tables, self.groups, strict=True))
        return ScheduledRequest(
            request_id=self.request_id,
            token_ids=tuple(self.token_ids[start:end]),
            start=start,
            block_tables=tuple(visible(table, spec, start, end) for table, spec in dealt),
            slot_runs=tuple(
                ((table[0], 0, 1),) if spec.kind == "state" else runs(table, spec.block_size, start, end)
                for table, spec in dealt
            ),
            is_prefill=num_tokens > 1,
            samples=samples,
            sampling=self.sampling,
            seed=self.seed,
        )

    def dropped_blocks(self) -> list[int]:
        """Blocks that the next token, and all after it, have outside of their window."""
        dealt = zip(self.tables, self.groups, strict=True)
        return [block for table, spec in dealt for block in table[: num_dropped(spec, self.num_computed)]]


def num_dropped(spec: GroupSpec, start: int) -> int:
    """Leading entries of a table in which a token at `start` reads nothing."""
    return 0 if spec.window is None else max(0, start - spec.window + 1) // spec.block_size


def visible(table: Table, spec: GroupSpec, start: int, end: int) -> Table:
    """The table as a step gets it that computes [start, end): garbage wherever it has nothing to look for."""
    dropped, used = num_dropped(spec, start), -(-end // spec.block_size)
    return (*(GARBAGE[entry % 2] for entry in range(dropped)), *table[dropped:used], *GARBAGE)


def runs(table: Table, block_size: int, start: int, end: int) -> tuple[SlotRun, ...]:
    """Positions [start, end) block by block: position p is at table[p // size], offset p % size."""
    cuts = [start, *range((start // block_size + 1) * block_size, end, block_size), end]
    return tuple(
        (table[first // block_size], first % block_size, last - first) for first, last in pairwise(cuts) if last > first
    )


class Dealer:
    """Deals the blocks of one pool to requests and groups, shuffled, each once. A number means one full group."""

    def __init__(self, num_blocks: int, groups: int | Sequence[GroupSpec], seed: int = 0) -> None:
        self.num_blocks = num_blocks
        self.groups = (GroupSpec(groups),) if isinstance(groups, int) else tuple(groups)
        self._free = list(range(num_blocks))
        self._num_requests = 0
        Random(seed).shuffle(self._free)

    def request(self, token_ids: list[int], sampling: SamplingParams | None = None, seed: int = 0) -> HandMadeRequest:
        """A new request with blocks for all its tokens in every group; one block in a group of states."""
        tables = tuple(
            self._deal(1 if spec.kind == "state" else -(-len(token_ids) // spec.block_size)) for spec in self.groups
        )
        self._num_requests += 1
        sampling = sampling or SamplingParams()
        return HandMadeRequest(self._num_requests - 1, token_ids, tables, self.groups, sampling=sampling, seed=seed)

    def _deal(self, num_blocks: int) -> Table:
        return tuple(self._free.pop() for _ in range(num_blocks))


def plan_of(*scheduled: ScheduledRequest) -> StepPlan:
    return StepPlan(tuple(scheduled))
