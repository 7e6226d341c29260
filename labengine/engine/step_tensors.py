"""A StepPlan as tensors, for the model and the attention backends, and the staging memory that fills them.

Staging: int32 host buffers, expanded by numpy, each copied to the device at once. No loop runs over tokens. Unchanged
values are not written again: a request's row of the block table is compared with its last content, and a decode that
opens no block costs one comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labengine.config import GroupSpec
from labengine.core.step_plan import ScheduledRequest, SlotRun, StepPlan


@dataclass(frozen=True, slots=True)
class GroupTensors:
    """The slots and block tables of the batch's tokens in one KV-cache group.

    window: tokens that a token attends to, itself included; None for all before it.
    slots: int32 [num_tokens]; the slot of each token's KV, block_id * block_size + offset. A slot below 0 is padding:
    it is not written.
    block_tables: int32 [num_requests, at least the most blocks]; entries that hold none of the positions that the
    step's tokens attend to are undefined.
    """

    block_size: int
    window: int | None
    slots: Tensor
    block_tables: Tensor


@dataclass(frozen=True, slots=True)
class StepTensors:
    """The step's batch: its requests' tokens one after the other, in the plan's order. All tensors are int32.

    Tensors live on the device and are overwritten by the next step; tuples and numbers stay on the host.

    token_ids, positions: [num_tokens].
    query_lens: tokens computed in this step, per request; context_lens: tokens that have KV after it.
    query_starts: [num_requests + 1]; request r has the rows query_starts[r] to query_starts[r + 1].
    contexts: [num_requests], context_lens on the device. 0 is padding: it reads nothing, and attends to zeros.
    sample_rows: [num_sampling]; the rows whose logits are needed.
    groups: one per KV-cache group.
    """

    token_ids: Tensor
    positions: Tensor
    query_lens: tuple[int, ...]
    context_lens: tuple[int, ...]
    query_starts: Tensor
    contexts: Tensor
    sample_rows: Tensor
    groups: tuple[GroupTensors, ...]

    @property
    def num_tokens(self) -> int:
        """Rows of the batch."""
        return self.token_ids.shape[0]

    @property
    def num_requests(self) -> int:
        """Requests of the batch, padding included."""
        return len(self.query_lens)

    @property
    def is_decode(self) -> bool:
        """True if every request computes one token: row r is request r."""
        return self.num_tokens == self.num_requests


def first_read(start: int, window: int | None) -> int:
    """Return the first position that a token at `start` attends to."""
    return 0 if window is None else max(0, start - window + 1)


def row_ranges(step: StepTensors) -> list[tuple[int, int]]:
    """Return the rows of each request, on the host."""
    ends = [0]
    for length in step.query_lens:
        ends.append(ends[-1] + length)
    return list(pairwise(ends))


# -- staging -----------------------------------------------------------------------------------------------------------


Ints = NDArray[np.int32]


class StagedArray:
    """An int32 array that is written on the host and read on the device; it grows, and never becomes smaller.

    On a CPU both are the same memory. On a GPU the host's side is pinned, and `sent` copies without waiting: before the
    next write the copy must be over (see StepStaging).
    """

    def __init__(self, device: torch.device, *shape: int) -> None:
        self._device = device
        self._allocate(shape)

    def _allocate(self, shape: tuple[int, ...]) -> None:
        pinned = self._device.type == "cuda"
        host = torch.zeros(shape, dtype=torch.int32, device="cpu", pin_memory=pinned)
        on_device = torch.zeros_like(host, device=self._device) if pinned else host
        written: Ints = host.numpy()
        # All three or none: there is no call in between, so no interrupt can come between them.
        self._host, self._on_device, self.host = host, on_device, written

    def has_room(self, *shape: int) -> bool:
        """Return True if `reserve` would change nothing."""
        return all(wanted <= has for wanted, has in zip(shape, self.host.shape, strict=True))

    def reserve(self, *shape: int) -> None:
        """Make room for at least `shape`. An array that was too small holds zeros then."""
        if self.has_room(*shape):
            return
        self._allocate(
            tuple(
                max(2 * has, wanted) if wanted > has else has
                for wanted, has in zip(shape, self.host.shape, strict=True)
            )
        )

    def sent(self, *extent: int) -> Tensor:
        """Copy the leading part of the array to the device, and return it."""
        part = tuple(slice(length) for length in extent)
        if self._on_device is not self._host:
            # Complete rows: a strided copy would be cut into one copy per row.
            self._on_device[part[0]].copy_(self._host[part[0]], non_blocking=True)
        return self._on_device[part]


class StagedTables:
    """One group's block tables, one row per request of the batch."""

    def __init__(self, spec: GroupSpec, device: torch.device) -> None:
        self.spec = spec
        self._array = StagedArray(device, 16, 16)
        self._rows: list[tuple[int, ...]] = []
        """The last content of each row."""
        self._has_null: list[bool] = []

    def filled(self, scheduled: Sequence[ScheduledRequest], group: int) -> Tensor:
        """Return the tables of these requests on the device.

        Raises ValueError for a table that is too short, and for a null entry that would be read.
        """
        tables = [request.block_tables[group] for request in scheduled]
        width = max(map(len, tables), default=0) or 1
        self._reserve(len(tables), width)
        for row, (table, before) in enumerate(zip(tables, self._rows, strict=False)):
            if table != before:
                self._write(row, table)
        for request, table, has_null in zip(scheduled, tables, self._has_null, strict=False):
            if has_null or len(table) * self.spec.block_size < request.end:
                self._require_readable(request, group, table)
        return self._array.sent(len(tables), width)

    def _reserve(self, num_rows: int, width: int) -> None:
        if not self._array.has_room(num_rows, width):
            self._rows, self._has_null = [], []  # before: an interrupt may come once the new array is there
            self._array.reserve(num_rows, width)
        missing = num_rows - len(self._rows)
        self._rows += [()] * missing
        self._has_null += [False] * missing

    def _write(self, row: int, table: tuple[int, ...]) -> None:
        self._rows[row] = ()  # interrupted, the row counts as unknown
        self._array.host[row, : len(table)] = table
        self._has_null[row] = min(table, default=0) < 0
        self._rows[row] = table

    def _require_readable(self, request: ScheduledRequest, group: int, table: tuple[int, ...]) -> None:
        block_size = self.spec.block_size
        end = -(-request.end // block_size)
        if len(table) < end:
            raise ValueError(f"request {request.request_id} needs {end} blocks, its table has {len(table)}")
        start = first_read(request.start, self.spec.window) // block_size
        for entry in range(start, end):
            if table[entry] < 0:
                raise ValueError(
                    f"request {request.request_id} would read through entry {entry} of its table in group {group}, "
                    f"which is {table[entry]}: no block"
                )


class StepStaging:
    """The buffers of a runner's steps. The next step overwrites a step's tensors.

    Before it writes, a step waits for the copies of the one before. They are usually over, because its tokens were read
    back; but a step that samples nothing is not waited for.
    """

    def __init__(self, groups: Sequence[GroupSpec], device: torch.device) -> None:
        self._groups = tuple(groups)
        self._token_ids, self._positions = StagedArray(device, 256), StagedArray(device, 256)
        self._query_starts, self._contexts = StagedArray(device, 17), StagedArray(device, 16)
        self._sample_rows = StagedArray(device, 16)
        self._slots = [StagedArray(device, 256) for _ in groups]
        self._tables = [StagedTables(spec, device) for spec in groups]
        self._device = device
        self._copied = torch.cuda.Event() if device.type == "cuda" else None

    def step_tensors(self, plan: StepPlan) -> StepTensors:
        """Expand a plan. Raises ValueError where a table or a run is too short, or a null entry would be read."""
        if self._copied is None:
            return self._expanded(plan)
        self._copied.synchronize()
        try:
            return self._expanded(plan)
        finally:
            self._copied.record(torch.cuda.current_stream(self._device))

    def _expanded(self, plan: StepPlan) -> StepTensors:
        scheduled = plan.scheduled
        query_lens = np.array([request.num_tokens for request in scheduled], dtype=np.int32)
        starts = np.array([request.start for request in scheduled], dtype=np.int32)
        ends = np.cumsum(query_lens, dtype=np.int32)
        samples = np.array([request.samples for request in scheduled], dtype=bool)
        contexts = starts + query_lens
        token_ids = np.fromiter(chain.from_iterable(r.token_ids for r in scheduled), np.int32, plan.num_tokens)
        return StepTensors(
            token_ids=_filled(self._token_ids, token_ids),
            positions=_filled(self._positions, expand_runs(starts, query_lens)),
            query_lens=tuple(query_lens.tolist()),
            context_lens=tuple(contexts.tolist()),
            query_starts=_filled(self._query_starts, np.concatenate(([0], ends))),
            contexts=_filled(self._contexts, contexts),
            sample_rows=_filled(self._sample_rows, (ends - 1)[samples]),
            groups=tuple(self._group_tensors(scheduled, group) for group in range(len(self._groups))),
        )

    def _group_tensors(self, scheduled: Sequence[ScheduledRequest], group: int) -> GroupTensors:
        spec = self._groups[group]
        slots = slots_of_runs([run for request in scheduled for run in request.slot_runs[group]], spec.block_size)
        if len(slots) != sum(request.num_tokens for request in scheduled):
            raise ValueError(f"slot_runs of group {group} do not cover the scheduled tokens: {len(slots)} slots")
        tables = self._tables[group].filled(scheduled, group)
        return GroupTensors(spec.block_size, spec.window, _filled(self._slots[group], slots), tables)


def step_tensors(plan: StepPlan, groups: Sequence[GroupSpec], device: torch.device) -> StepTensors:
    """Return a single plan's tensors, in buffers of their own."""
    return StepStaging(groups, device).step_tensors(plan)


def expand_runs(starts: Ints, lengths: Ints) -> Ints:
    """Return the ranges [start, start + length) one after the other.

    expand_runs([7, 2], [2, 3]) gives [7, 8, 2, 3, 4].
    """
    before = np.cumsum(lengths, dtype=np.int32) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum(), dtype=np.int32)


def slots_of_runs(runs: Sequence[SlotRun], block_size: int) -> Ints:
    """Return the slots of consecutive runs: int32 [sum of their lengths]."""
    block_ids, offsets, lengths = np.array(runs, dtype=np.int32).reshape(-1, 3).T
    return expand_runs(block_ids * block_size + offsets, lengths)


def _filled(array: StagedArray, values: Ints) -> Tensor:
    array.reserve(len(values))
    array.host[: len(values)] = values
    return array.sent(len(values))
