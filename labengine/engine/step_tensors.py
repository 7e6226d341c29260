"""A StepPlan as tensors, for the model and the attention backends, and the staging memory that fills them.

Staging: int32 host memory, copied to the device in one piece. Loops run over requests, numpy over tokens. Unchanged
values are not written again: a request's row of the block table is compared with its last content, so a decode that
opens no block costs one comparison.

A decode does as little as possible here, because everything is slow: the weights that a step reads on a CPU have driven
Python, numpy and torch out of its caches, so a call takes ten times as long as in a tight loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from operator import add, itemgetter

import numpy as np
import torch
from torch import Tensor

from labengine.config import GroupSpec
from labengine.core.step_plan import UNSAMPLED, ScheduledRequest, SlotRun, StepPlan
from labengine.engine.checkpoints import without_checkpoints
from labengine.engine.device import sent
from labengine.engine.staged_memory import LastCopy, Numbers, StagedMemory


@dataclass(frozen=True, slots=True)
class GroupTensors:
    """The slots and block tables of the batch's tokens in one KV-cache group.

    window: number of tokens that a token attends to, itself included; None for all before it.
    slots: int32 [num_tokens]; the slot of each token's KV, block_id * block_size + offset. A slot below 0 is padding,
    and not written.
    block_tables: int32 [num_requests, at least the largest number of blocks]; entries without a position that the
    step's tokens attend to are undefined.
    is_state: True if the layers keep a state. Then slots are [num_requests], the block of each request's state, and the
    tables are not read.
    depths: for a state group, per request of the batch: number of earlier chunks of the same request in the step; the
    chunk continues from the state they leave.
    sources: in a step with checkpoints, per request: the block of the state from which its first chunk continues.
    """

    block_size: int
    window: int | None
    slots: Tensor
    block_tables: Tensor
    is_state: bool = False
    depths: tuple[int, ...] = ()
    sources: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NewTokens:
    """A step's sampled tokens, still unknown to the host: int64 [num_sampling] on the device."""

    plan: StepPlan
    tokens: Tensor


@dataclass(frozen=True, slots=True)
class LateTokens:
    """Token ids of a step that only the device knows: tokens[columns[i]] belongs in row rows[i]."""

    rows: Sequence[int]
    columns: Sequence[int]
    tokens: Tensor

    def put_into(self, token_ids: Tensor) -> None:
        """Write the ids on the device, after the step that samples them. The host does not wait."""
        count = len(self.rows)
        if self.rows == self.columns == [*range(count)]:  # the same requests continue to decode
            token_ids[:count].copy_(self.tokens[:count], non_blocking=True)
        elif count:
            rows, columns = sent(torch.tensor([self.rows, self.columns], device="cpu"), token_ids.device)
            token_ids.index_copy_(0, rows, self.tokens.index_select(0, columns).to(token_ids.dtype))


@dataclass(frozen=True, slots=True)
class StepTensors:
    """The step's batch: its requests' tokens, concatenated in the plan's order. All tensors are int32.

    Tensors live on the device, except that those of a decode for a graph live on the host (see GraphStaging). The next
    step overwrites them. Tuples and numbers stay on the host.

    token_ids, positions: [num_tokens].
    query_lens: tokens computed in this step, per request; context_lens: tokens that have KV after it.
    query_starts: [num_requests + 1]; request r has the rows query_starts[r] to query_starts[r + 1].
    contexts: [num_requests], context_lens on the device. 0 means padding, which reads nothing and attends to zeros.
    sample_rows: [num_sampling]; the rows whose logits are needed.
    groups: one per KV-cache group.
    late_tokens: token ids still to be written, if token_ids are on the host; they hold 0 there.
    """

    token_ids: Tensor
    positions: Tensor
    query_lens: tuple[int, ...]
    context_lens: tuple[int, ...]
    query_starts: Tensor
    contexts: Tensor
    sample_rows: Tensor
    groups: tuple[GroupTensors, ...]
    late_tokens: LateTokens | None = None

    @property
    def num_tokens(self) -> int:
        """Number of rows of the batch."""
        return self.token_ids.shape[0]

    @property
    def num_requests(self) -> int:
        """Number of requests of the batch, padding included."""
        return len(self.query_lens)

    @property
    def is_decode(self) -> bool:
        """True if every request computes one token, so that row r is request r."""
        return self.num_tokens == self.num_requests


def first_read(start: int, window: int | None) -> int:
    """Return the first position that a token at `start` attends to."""
    return 0 if window is None else max(0, start - window + 1)


def slots_read(spec: GroupSpec, table: Sequence[int], start: int, end: int) -> Tensor:
    """Return the slots of positions [start, end) through a block table: int64 [end - start], on the host."""
    size = spec.block_size
    return torch.tensor([table[p // size] * size + p % size for p in range(start, end)], dtype=torch.int64)


def row_ranges(step: StepTensors) -> list[tuple[int, int]]:
    """Return the rows of each request, on the host."""
    ends = [0]
    for length in step.query_lens:
        ends.append(ends[-1] + length)
    return list(pairwise(ends))


# -- staging -----------------------------------------------------------------------------------------------------------


class StagedTables:
    """One group's block tables, one row per request of the batch."""

    def __init__(self, spec: GroupSpec, group: int) -> None:
        self.spec = spec
        self._group = group
        self._rows: list[tuple[int, ...]] = []
        """The last content of each row."""
        self._has_null: list[bool] = []

    def forget(self) -> None:
        """Mark all rows as unwritten."""
        self._rows, self._has_null = [], []

    def fill(self, memory: StagedMemory, scheduled: Sequence[ScheduledRequest], context_lens: Sequence[int]) -> None:
        """Write the changed tables of these requests; the memory must have room for them.

        Raises ValueError for a table that is too short, or for a null entry that would be read.
        """
        missing = max(0, len(scheduled) - len(self._rows))
        self._rows += [()] * missing
        self._has_null += [False] * missing
        group, block_size, rows, has_null = self._group, self.spec.block_size, self._rows, self._has_null
        for row, (request, context) in enumerate(zip(scheduled, context_lens, strict=True)):
            table = request.block_tables[group]
            if table is not rows[row] and table != rows[row]:
                self._write(memory, row, table)
            if has_null[row] or len(table) * block_size < context:
                self._require_readable(request, table)

    def _write(self, memory: StagedMemory, row: int, table: tuple[int, ...]) -> None:
        self._rows[row] = ()  # interrupted, the row counts as unknown
        memory.tables[row, self._group, : len(table)] = table
        self._has_null[row] = min(table, default=0) < 0
        self._rows[row] = table

    def _require_readable(self, request: ScheduledRequest, table: tuple[int, ...]) -> None:
        block_size = self.spec.block_size
        end = -(-request.end // block_size)
        if len(table) < end:
            raise ValueError(f"request {request.request_id} needs {end} blocks, but its table has {len(table)}")
        start = first_read(request.start, self.spec.window) // block_size
        for entry in range(start, end):
            if table[entry] < 0:
                raise ValueError(
                    f"request {request.request_id} would read KV through entry {entry} of its table in group "
                    f"{self._group}, which is {table[entry]}, not a block"
                )


class StepStaging:
    """The memory of a runner's steps. The next step overwrites a step's tensors."""

    def __init__(self, groups: Sequence[GroupSpec], device: torch.device, *, is_copied: bool | None = None) -> None:
        """is_copied: see StagedMemory."""
        self._groups = tuple(groups)
        self._memory = StagedMemory(device, len(self._groups), is_copied=is_copied)
        self._tables = [StagedTables(spec, group) for group, spec in enumerate(groups)]
        self._last_copy = LastCopy(device) if device.type == "cuda" else None

    def step_tensors(self, plan: StepPlan, new: NewTokens | None = None) -> StepTensors:
        """Expand a plan. Raises ValueError if a table or a run is too short, or a null entry would be read.

        new: the tokens for which UNSAMPLED stands.
        """
        with nullcontext() if self._last_copy is None else self._last_copy.replaced():
            step = self.expanded(plan, new)
        if step.late_tokens is not None:
            step.late_tokens.put_into(step.token_ids)
        return step

    def expanded(self, plan: StepPlan, new: NewTokens | None = None) -> StepTensors:
        """Expand a plan into memory that is no longer read. Its late tokens are not written."""
        scheduled = without_checkpoints(plan.scheduled, self._groups)
        has_checkpoints = scheduled is not plan.scheduled
        texts = [request.token_ids for request in scheduled]
        starts = [request.start for request in scheduled]
        query_lens = tuple(map(len, texts))
        context_lens = tuple(map(add, starts, query_lens))
        ends = list(accumulate(query_lens))
        token_ids = list(chain.from_iterable(texts))
        late = None if new is None else _taken_out(token_ids, ends, scheduled, new)
        positions = expand_runs(starts, query_lens)
        sample_rows = [end - 1 for end, request in zip(ends, scheduled, strict=True) if request.samples]
        slots = [
            _state_blocks(scheduled, group, has_checkpoints)
            if spec.kind == "state"
            else self._slots(scheduled, group, len(token_ids))
            for group, spec in enumerate(self._groups)
        ]
        arrays = token_ids, positions, [0, *ends], context_lens, sample_rows, *slots
        widths = self._fill_tables(scheduled, context_lens, [len(array) for array in arrays])
        sent = self._memory.sent(arrays, len(scheduled))
        return StepTensors(
            token_ids=sent[0],
            positions=sent[1],
            query_lens=query_lens,
            context_lens=context_lens,
            query_starts=sent[2],
            contexts=sent[3],
            sample_rows=sent[4],
            groups=tuple(
                GroupTensors(
                    spec.block_size,
                    spec.window,
                    sent[5 + i],
                    self._memory.table(i, len(scheduled), widths[i]),
                    spec.kind == "state",
                    _depths(scheduled) if spec.kind == "state" else (),
                    _sources(scheduled, i) if has_checkpoints and spec.kind == "state" else (),
                )
                for i, spec in enumerate(self._groups)
            ),
            late_tokens=late,
        )

    def _fill_tables(
        self, scheduled: Sequence[ScheduledRequest], context_lens: Sequence[int], lengths: Sequence[int]
    ) -> list[int]:
        """Make room for the step, write its tables, and return the number of columns of each group's table."""
        widths = [
            max([len(request.block_tables[group]) for request in scheduled], default=0) or 1
            for group in range(len(self._groups))
        ]
        needed = lengths, len(scheduled), max(widths, default=1)
        if not self._memory.has_room(*needed):
            for tables in self._tables:
                tables.forget()  # first, as an interrupt may come once the new memory is there
            self._memory.reserve(*needed)
        for tables in self._tables:
            if tables.spec.kind != "state":
                tables.fill(self._memory, scheduled, context_lens)
        return widths

    def _slots(self, scheduled: Sequence[ScheduledRequest], group: int, num_tokens: int) -> Numbers:
        runs = list(chain.from_iterable([request.slot_runs[group] for request in scheduled]))
        slots = slots_of_runs(runs, self._groups[group].block_size)
        if len(slots) != num_tokens:
            raise ValueError(
                f"slot_runs of group {group} must cover exactly the scheduled tokens, but have {len(slots)} slots"
            )
        return slots


def _state_blocks(scheduled: Sequence[ScheduledRequest], group: int, has_checkpoints: bool) -> list[int]:
    """Return the block in which each request leaves its state. Raises ValueError unless its runs name exactly one.

    In a step with checkpoints there may be two runs; the state is left in the second run's block.
    """
    blocks = []
    for request in scheduled:
        runs = request.slot_runs[group]
        if not 1 <= len(runs) <= 1 + has_checkpoints or any(run[0] < 0 or run[1:] != (0, 1) for run in runs):
            raise ValueError(
                f"request {request.request_id}: slot_runs of group {group}, which keeps states, must be a single "
                f"(block_id, 0, 1), got {runs}"
            )
        blocks.append(runs[-1][0])
    return blocks


def _sources(scheduled: Sequence[ScheduledRequest], group: int) -> tuple[int, ...]:
    return tuple(request.slot_runs[group][0][0] for request in scheduled)


def _depths(scheduled: Sequence[ScheduledRequest]) -> tuple[int, ...]:
    """Return, per request, the number of entries right before it for the same request."""
    depths: list[int] = []
    before = None
    for request in scheduled:
        depths.append(depths[-1] + 1 if before is not None and before.request_id == request.request_id else 0)
        before = request
    return tuple(depths)


def _taken_out(
    token_ids: list[int], ends: Sequence[int], scheduled: Sequence[ScheduledRequest], new: NewTokens
) -> LateTokens:
    """Replace each UNSAMPLED among token_ids by 0; return the late tokens that belong there."""
    column_of = {request.request_id: column for column, request in enumerate(new.plan.sampling)}
    rows, columns = [], []
    for end, request in zip(ends, scheduled, strict=True):
        if request.token_ids and token_ids[end - 1] is UNSAMPLED:
            token_ids[end - 1] = 0
            rows.append(end - 1)
            columns.append(column_of[request.request_id])
    return LateTokens(rows, columns, new.tokens)


def step_tensors(plan: StepPlan, groups: Sequence[GroupSpec], device: torch.device) -> StepTensors:
    """Return a single plan's tensors, in separate buffers."""
    return StepStaging(groups, device).step_tensors(plan)


def expand_runs(starts: Sequence[int], lengths: Sequence[int]) -> Numbers:
    """Return the ranges [start, start + length), concatenated.

    expand_runs([7, 2], [2, 3]) gives [7, 8, 2, 3, 4].
    """
    if lengths.count(1) == len(lengths):  # decodes
        return starts
    firsts, counts = np.array((starts, lengths), dtype=np.int32)
    before = np.cumsum(counts, dtype=np.int32) - counts
    return np.repeat(firsts - before, counts) + np.arange(counts.sum(), dtype=np.int32)


def slots_of_runs(runs: Sequence[SlotRun], block_size: int) -> Numbers:
    """Return the slots of consecutive runs, one per token."""
    starts = [block_id * block_size + offset for block_id, offset, _ in runs]
    return expand_runs(starts, list(map(itemgetter(2), runs)))
