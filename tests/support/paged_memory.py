"""A runner with a memory: what a slot holds is the token prefix whose KV was written there, and every read is checked.

It needs no weights and settles silent corruption: a block overwritten under a live request, a hit on stale content, a
merge of unequal blocks, a block freed while a window still reaches it, or a load into the wrong block raises
CorruptRead in the forward pass that would have read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import lcm
from typing import TYPE_CHECKING, Any

from labengine.config import GroupSpec
from labengine.core.connector import BlockKV
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.step_plan import ScheduledRequest, SlotRun, StepPlan
from labengine.engine.simulated import NextToken, SimulatedRunner

if TYPE_CHECKING:
    from labengine.engine.engine import Engine

Cell = tuple[int, int] | None
"""(group, hash of the token prefix whose KV is here); None where nothing was written yet."""


class CorruptRead(AssertionError):
    """A request was about to attend to KV that is not its own."""


class StrayWrite(AssertionError):
    """A request was about to write into a block that it does not hold, or that others read already."""


class PagedMemoryRunner(SimulatedRunner):
    """Samples next_token, as the simulated runner does.

    All groups share the memory: a block is a page of cells, and a token of a group with smaller blocks takes more of
    them, as in a real pool of equal pages. So two groups in one block overwrite each other here too.

    checks: without, an edition that lets requests read another's KV runs on.
    fail_in_forward: raised by the next forward pass, once it has written `num_writes_before` of its tokens' KV.
    fail_in_sample: raised whenever tokens are sampled.
    """

    def __init__(self, next_token: NextToken, groups: Sequence[GroupSpec], *, checks: bool = True) -> None:
        super().__init__(next_token)
        self._checks = checks
        self.fail_in_forward: BaseException | None = None
        self.num_writes_before = 0
        self.fail_in_sample: BaseException | None = None
        self.plan = StepPlan(())
        """The plan of the newest forward pass."""
        self.num_reads = 0
        self.strays: list[str] = []
        """Loads into blocks that were free."""
        self._groups = groups
        self._num_cells = lcm(*(group.block_size for group in groups))
        self._pages: dict[int, list[Cell]] = {}
        self._is_shared_early = False
        self._engine: Engine | None = None

    def attach(self, engine: Engine) -> None:
        """Know the engine's requests and blocks."""
        self._engine = engine
        registers = engine.parts.kv_cache_manager.num_registrable_tokens
        self._is_shared_early = registers is not KVCacheManager.num_registrable_tokens

    def forward(self, plan: StepPlan) -> None:
        """Write, then read, request by request."""
        if self.strays:  # not raised where they happened: whatever a tier raises counts as a load that failed
            raise StrayWrite(self.strays[0])
        self.plan = plan
        failure, self.fail_in_forward = self.fail_in_forward, None
        num_left = self.num_writes_before
        prefixes = {request.request_id: self._prefixes(request) for request in plan.scheduled}
        for request, group, position, block_id, offset in _writes(plan):
            if failure is not None and num_left == 0:
                raise failure
            self._write(request, group, block_id, offset, prefixes[request.request_id][position])
            num_left -= 1
        if failure is not None:
            raise failure
        for request in plan.scheduled if self._checks else ():
            for group, spec in enumerate(self._groups):
                self._read(request, group, spec, prefixes[request.request_id])

    def sample(self, plan: StepPlan, logits: None) -> list[int]:
        """next_token, or the failure that was asked for."""
        if self.fail_in_sample is not None:
            raise self.fail_in_sample
        return super().sample(plan, logits)

    def copy_block(self, group: int, block_id: int, into_block_id: int) -> None:
        """The page, cell by cell."""
        if self._ref_count(into_block_id) < 1:
            self.strays.append(f"block {into_block_id} of group {group} is free, and is copied into")
        self._pages[into_block_id] = list(self._page(block_id))

    def read_block(self, group: int, block_id: int) -> Any:
        """A copy of the page."""
        return {"cells": tuple(self._page(block_id))}

    def write_block(self, group: int, block_id: int, kv: BlockKV | None) -> None:
        """The page as it was read."""
        assert kv is not None
        if self._ref_count(block_id) < 1:
            self.strays.append(f"block {block_id} of group {group} is free, and is loaded into")
        self._pages[block_id] = list(kv["cells"])

    def _write(self, request: ScheduledRequest, group: int, block_id: int, offset: int, prefix: int) -> None:
        ref_count = self._ref_count(block_id)
        is_shared = ref_count > 1 and not self._is_shared_early  # where hashes are registered early, hits come early
        if ref_count < 1 or is_shared or block_id not in request.block_tables[group]:
            raise StrayWrite(f"request {request.request_id} writes to block {block_id} of group {group}")
        cells = self._cells(self._groups[group], offset)
        self._page(block_id)[cells] = [(group, prefix)] * (cells.stop - cells.start)

    def _read(self, request: ScheduledRequest, group: int, spec: GroupSpec, prefixes: Sequence[int]) -> None:
        """Everything that the first scheduled token attends to, and on from there."""
        table = request.block_tables[group]
        first = 0 if spec.window is None else max(0, request.start - spec.window + 1)
        for position in range(first, request.end):
            block_id, offset = table[position // spec.block_size], position % spec.block_size
            cells = self._cells(spec, offset)
            if self._page(block_id)[cells] != [(group, prefixes[position])] * (cells.stop - cells.start):
                raise CorruptRead(
                    f"request {request.request_id}, group {group}, position {position}, block {block_id}, slot {offset}"
                )
            self.num_reads += 1

    def _prefixes(self, request: ScheduledRequest) -> list[int]:
        """For each position up to the request's end: a hash of what its KV depends on."""
        assert self._engine is not None
        state = self._engine.requests[request.request_id]
        prefix, prefixes = hash(state.extra_keys), []
        for token_id in state.token_ids[: request.end]:
            prefix = hash((prefix, token_id))
            prefixes.append(prefix)
        return prefixes

    def _cells(self, spec: GroupSpec, offset: int) -> slice:
        size = self._num_cells // spec.block_size
        return slice(offset * size, (offset + 1) * size)

    def _page(self, block_id: int) -> list[Cell]:
        """The null block has none."""
        assert self._engine is not None
        if block_id < 0 or block_id == self._engine.scheduler.manager.pool.null_block:
            raise CorruptRead(f"the null block {block_id} was read")
        return self._pages.setdefault(block_id, [None] * self._num_cells)

    def _ref_count(self, block_id: int) -> int:
        assert self._engine is not None
        return self._engine.scheduler.manager.pool.blocks[block_id].ref_count


def _writes(plan: StepPlan) -> Iterator[tuple[ScheduledRequest, int, int, int, int]]:
    """(request, group, position, block id, offset) for each slot that the plan writes."""
    for request in plan.scheduled:
        for group, runs in enumerate(request.slot_runs):
            for position, (block_id, offset) in zip(range(request.start, request.end), _slots(runs), strict=True):
                yield request, group, position, block_id, offset


def _slots(runs: Sequence[SlotRun]) -> Iterator[tuple[int, int]]:
    return ((block_id, offset + i) for block_id, offset, length in runs for i in range(length))
