"""A decode step's static tensors: a recorded graph reads them at the addresses of the recording.

A step of n requests fills the first n rows. The rows after them, up to the graph's size, are padding: they write
nothing (slot -1), read nothing (context 0), and compute token 0 at position 0, which is not used.

Rows are filled and padded on the host. One copy brings them to the device, where the graphs read views of the same
layout:

    [ token_ids | positions | contexts | slots of each group | row 0 of each table | row 1 of each table | ... ]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate
from typing import ClassVar

import torch
from torch import Tensor

from labengine.config import GroupSpec
from labengine.engine.staged_memory import LastCopy, aligned
from labengine.engine.step_tensors import GroupTensors, StepTensors

NOWHERE = -1
"""The slot of a padding row."""
STRIDE = 16
"""Table rows are multiples of this many numbers, because Triton has a faster kernel for such strides."""


class StaticStep:
    """Rows for up to max_num_seqs decodes, each with a context of up to max_context tokens.

    All sizes share the rows; the step of 4 requests is the first half of the step of 8.
    """

    copies_always: ClassVar[bool] = False
    """True to give host and device separate memory on a CPU too, as on a GPU."""

    def __init__(self, groups: Sequence[GroupSpec], max_num_seqs: int, max_context: int, device: torch.device) -> None:
        self.max_num_seqs = max_num_seqs
        self.max_context = max_context
        self.is_copied = self.copies_always or device.type == "cuda"
        self._num_filled = 0
        """Number of rows with a request; all rows after them are padding."""
        widths = [self.table_width(spec) for spec in groups]
        self._table_starts = [0, *accumulate(-(-width // STRIDE) * STRIDE for width in widths)]
        self._num_numbers = (3 + len(groups)) * aligned(max_num_seqs)
        size = self._num_numbers + max_num_seqs * self._table_starts[-1]
        self._host = torch.zeros(size, dtype=torch.int32, device="cpu", pin_memory=device.type == "cuda")
        self._step = self._views_of(self._host, groups)
        for group in self._step.groups:
            group.slots.fill_(NOWHERE)
        self._on_device, self._recorded = self._host, self._step
        if self.is_copied:
            self._on_device = self._host.to(device, copy=True)
            self._recorded = self._views_of(self._on_device, groups)
        self._last_copy = LastCopy(device) if device.type == "cuda" else None

    def _views_of(self, memory: Tensor, groups: Sequence[GroupSpec]) -> StepTensors:
        """Return all rows as views of the host's or the device's memory."""
        num_rows = self.max_num_seqs
        numbers = memory[: self._num_numbers].view(-1, aligned(num_rows))[:, :num_rows]
        tables = memory[self._num_numbers :].view(num_rows, -1)
        row_numbers = torch.arange(num_rows + 1, dtype=torch.int32, device=memory.device)
        return StepTensors(
            token_ids=numbers[0],
            positions=numbers[1],
            query_lens=(1,) * num_rows,
            context_lens=(self.max_context,) * num_rows,
            query_starts=row_numbers,
            contexts=numbers[2],
            sample_rows=row_numbers[:-1],
            groups=tuple(
                GroupTensors(spec.block_size, spec.window, slots, tables[:, start : start + self.table_width(spec)])
                for spec, slots, start in zip(groups, numbers[3:], self._table_starts, strict=False)
            ),
        )

    def rows(self, size: int) -> StepTensors:
        """Return the step of `size` requests as views on the host, which `fill` and `pad` write to.

        Its context_lens are the upper bound max_context.
        """
        return _first_rows(self._step, size)

    def recorded_rows(self, size: int) -> StepTensors:
        """Return the same step on the device, which a graph of that size reads."""
        return _first_rows(self._recorded, size)

    def table_width(self, spec: GroupSpec) -> int:
        """Return the number of columns of a group's block tables, enough for the longest context."""
        return -(-self.max_context // spec.block_size)

    def has_room_for(self, step: StepTensors) -> bool:
        """Return True for a step of decodes that all sample and fit into the rows and tables."""
        return (
            step.is_decode
            and step.sample_rows.shape[0] == step.num_requests
            and 0 < step.num_requests <= self.max_num_seqs
            and max(step.context_lens) <= self.max_context
        )

    def load(self, step: StepTensors) -> None:
        """Fill the first rows with a step that fits, and copy them to the device.

        Remaining rows of the previous step become padding.
        """
        with self._rows_writable():
            before, now = self._num_filled, step.num_requests
            self._num_filled = max(before, now)  # after an interrupt no filled row may count as padding
            self.fill(step)
            if now < before:
                self.pad(self.rows(before), now)
            self._num_filled = now
            self._send(max(before, now))
        if step.late_tokens is not None:
            step.late_tokens.put_into(self._recorded.token_ids)

    def fill(self, step: StepTensors) -> None:
        """Copy a step into the first rows. Table columns after a request's blocks keep old ids, which are not read."""
        ours, count = self._step, step.num_requests
        torch._foreach_copy_([static[:count] for static in _row_tensors(ours)], list(_row_tensors(step)))
        for group, new in zip(ours.groups, step.groups, strict=True):
            width = min(group.block_tables.shape[1], new.block_tables.shape[1])
            group.block_tables[:count, :width].copy_(new.block_tables[:, :width])

    def pad(self, rows: StepTensors, first: int) -> None:
        """Turn the rows from `first` on into padding, which writes nothing and reads nothing."""
        for tensor in (rows.token_ids, rows.positions, rows.contexts):
            tensor[first:].fill_(0)
        for group in rows.groups:
            group.slots[first:].fill_(NOWHERE)

    def _rows_writable(self) -> AbstractContextManager[None]:
        """Wait until the copy of the previous step has ended."""
        return nullcontext() if self._last_copy is None else self._last_copy.replaced()

    def _send(self, num_rows: int) -> None:
        """Copy all rows' numbers and the first rows' tables in one piece. The host does not wait."""
        if self.is_copied:
            end = self._num_numbers + num_rows * self._table_starts[-1]
            self._on_device[:end].copy_(self._host[:end], non_blocking=True)


def _first_rows(step: StepTensors, size: int) -> StepTensors:
    return StepTensors(
        token_ids=step.token_ids[:size],
        positions=step.positions[:size],
        query_lens=step.query_lens[:size],
        context_lens=step.context_lens[:size],
        query_starts=step.query_starts[: size + 1],
        contexts=step.contexts[:size],
        sample_rows=step.sample_rows[:size],
        groups=tuple(
            GroupTensors(group.block_size, group.window, group.slots[:size], group.block_tables[:size])
            for group in step.groups
        ),
    )


def _row_tensors(step: StepTensors) -> Iterator[Tensor]:
    """Yield each tensor that has one entry per row."""
    yield from (step.token_ids, step.positions, step.contexts)
    yield from (group.slots for group in step.groups)
