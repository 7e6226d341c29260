"""A StepPlan as tensors: what the model and the attention backends read. Numpy expands it, no loop per token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labengine.config import GroupSpec
from labengine.core.step_plan import ScheduledRequest, SlotRun, StepPlan

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class GroupTensors:
    """Where one KV-cache group keeps the batch's tokens.

    window: how many tokens a token attends to, itself among them; None for all before it.
    slots: int64 [num_tokens]; the slot that each token's KV is written to, block_id * block_size + offset.
    block_tables: int64 [num_requests, most blocks]; entries that hold none of the positions that the step's tokens
    attend to are 0 and mean nothing.
    """

    block_size: int
    window: int | None
    slots: Tensor
    block_tables: Tensor


@dataclass(frozen=True, slots=True)
class StepTensors:
    """The step's batch, its requests' tokens laid end to end in the plan's order.

    token_ids, positions: int64 [num_tokens].
    query_lens: tokens computed in this step, per request; context_lens: tokens that have KV after it.
    sample_rows: int64 [num_sampling]; the rows whose logits are asked for.
    groups: one per KV-cache group.
    """

    token_ids: Tensor
    positions: Tensor
    query_lens: tuple[int, ...]
    context_lens: tuple[int, ...]
    sample_rows: Tensor
    groups: tuple[GroupTensors, ...]


def step_tensors(plan: StepPlan, groups: Sequence[GroupSpec], device: torch.device) -> StepTensors:
    """Expand `plan` for these KV-cache groups.

    Raises ValueError where a table or a run is too short, or a null entry would have to be read.
    """
    scheduled = plan.scheduled
    query_lens = np.array([request.num_tokens for request in scheduled], dtype=np.int64)
    starts = np.array([request.start for request in scheduled], dtype=np.int64)
    sample_rows = (np.cumsum(query_lens) - 1)[[request.samples for request in scheduled]]
    token_ids = np.array(list(chain.from_iterable(request.token_ids for request in scheduled)), dtype=np.int64)
    return StepTensors(
        token_ids=_to(device, token_ids),
        positions=_to(device, expand_runs(starts, query_lens)),
        query_lens=tuple(query_lens.tolist()),
        context_lens=tuple((starts + query_lens).tolist()),
        sample_rows=_to(device, sample_rows),
        groups=tuple(_group_tensors(scheduled, group, spec, device) for group, spec in enumerate(groups)),
    )


def first_read(start: int, window: int | None) -> int:
    """The first position that a token at `start` attends to."""
    return 0 if window is None else max(0, start - window + 1)


def expand_runs(starts: Ints, lengths: Ints) -> Ints:
    """The ranges [start, start + length), one after the other: starts 7, 2 and lengths 2, 3 give 7, 8, 2, 3, 4."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum(), dtype=np.int64)


def slots_of_runs(runs: Sequence[SlotRun], block_size: int) -> Ints:
    """The slots of consecutive runs, int64 [sum of their lengths]."""
    block_ids, offsets, lengths = np.array(runs, dtype=np.int64).reshape(-1, 3).T
    return expand_runs(block_ids * block_size + offsets, lengths)


def _group_tensors(
    scheduled: Sequence[ScheduledRequest], group: int, spec: GroupSpec, device: torch.device
) -> GroupTensors:
    runs = [run for request in scheduled for run in request.slot_runs[group]]
    slots = slots_of_runs(runs, spec.block_size)
    if len(slots) != sum(request.num_tokens for request in scheduled):
        raise ValueError(f"slot_runs of group {group} do not cover the scheduled tokens: {len(slots)} slots")
    tables = _padded_tables(scheduled, group, spec)
    return GroupTensors(spec.block_size, spec.window, _to(device, slots), _to(device, tables))


def _padded_tables(scheduled: Sequence[ScheduledRequest], group: int, spec: GroupSpec) -> Ints:
    """Only entries that the step reads; the others, null entries among them, become 0."""
    used = [-(-request.end // spec.block_size) for request in scheduled]
    padded = np.zeros((len(scheduled), max(used, default=0)), dtype=np.int64)
    for row, request, end in zip(padded, scheduled, used, strict=True):
        table = request.block_tables[group]
        if len(table) < end:
            raise ValueError(f"request {request.request_id} needs {end} blocks, its table has {len(table)}")
        start = first_read(request.start, spec.window) // spec.block_size
        row[start:end] = table[start:end]
    if padded.size and padded.min() < 0:
        index, entry = np.argwhere(padded < 0)[0]
        raise ValueError(
            f"request {scheduled[index].request_id} would read through entry {entry} of its table in group {group}, "
            f"which is {padded[index, entry]}: no block"
        )
    return padded


def _to(device: torch.device, array: Ints) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)
