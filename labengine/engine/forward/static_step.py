"""A decode step's static tensors: a recorded graph reads them at the addresses of the recording.

A step of n requests fills the first n rows. The rows after them, up to the graph's size, are padding: they write
nothing (slot -1), read nothing (context 0), and compute token 0 at position 0 without a use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from labengine.config import GroupSpec
from labengine.engine.step_tensors import GroupTensors, StepTensors

NOWHERE = -1
"""The slot of a padding row."""


class StaticStep:
    """Rows for up to max_num_seqs decodes, each with a context of up to max_context tokens.

    All sizes share the rows: the step of 4 requests is the first half of the step of 8.
    """

    def __init__(self, groups: Sequence[GroupSpec], max_num_seqs: int, max_context: int, device: torch.device) -> None:
        self.max_num_seqs = max_num_seqs
        self.max_context = max_context
        self._num_filled = 0
        """Rows with a request; all rows after them are padding."""
        row_numbers = torch.arange(max_num_seqs + 1, dtype=torch.int32, device=device)
        rows = torch.zeros(3, max_num_seqs, dtype=torch.int32, device=device)
        self._step = StepTensors(
            token_ids=rows[0],
            positions=rows[1],
            query_lens=(1,) * max_num_seqs,
            context_lens=(max_context,) * max_num_seqs,
            query_starts=row_numbers,
            contexts=rows[2],
            sample_rows=row_numbers[:-1],
            groups=tuple(self._static_group(spec, device) for spec in groups),
        )

    def rows(self, size: int) -> StepTensors:
        """Return the step of `size` requests, as views; its context_lens are the upper bound max_context."""
        step = self._step
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

    def table_width(self, spec: GroupSpec) -> int:
        """Return the columns of a group's block tables: a block for every position of the longest context."""
        return -(-self.max_context // spec.block_size)

    def has_room_for(self, step: StepTensors) -> bool:
        """Return True for a step of decodes that all sample and fit into the rows and tables here."""
        return (
            step.is_decode
            and step.sample_rows.shape[0] == step.num_requests
            and 0 < step.num_requests <= self.max_num_seqs
            and max(step.context_lens) <= self.max_context
        )

    def load(self, step: StepTensors) -> None:
        """Fill the first rows with a step that fits; rows of the step before become padding."""
        before, now = self._num_filled, step.num_requests
        self._num_filled = max(before, now)  # after an interrupt no filled row may count as padding
        self.fill(step)
        if now < before:
            self.pad(self.rows(before), now)
        self._num_filled = now

    def fill(self, step: StepTensors) -> None:
        """Copy a step into the first rows. Table columns behind a request's blocks keep old ids: none is read."""
        ours, count = self._step, step.num_requests
        # One launch on a GPU for all of them.
        torch._foreach_copy_([static[:count] for static in _row_tensors(ours)], list(_row_tensors(step)))
        for group, new in zip(ours.groups, step.groups, strict=True):
            width = min(group.block_tables.shape[1], new.block_tables.shape[1])
            group.block_tables[:count, :width].copy_(new.block_tables[:, :width])

    def pad(self, rows: StepTensors, first: int) -> None:
        """Make the rows from `first` on padding: they write nothing and read nothing."""
        for tensor in (rows.token_ids, rows.positions, rows.contexts):
            tensor[first:].fill_(0)
        for group in rows.groups:
            group.slots[first:].fill_(NOWHERE)

    def _static_group(self, spec: GroupSpec, device: torch.device) -> GroupTensors:
        num_rows, width = self.max_num_seqs, self.table_width(spec)
        slots = torch.full((num_rows,), NOWHERE, dtype=torch.int32, device=device)
        tables = torch.zeros(num_rows, width, dtype=torch.int32, device=device)
        return GroupTensors(spec.block_size, spec.window, slots, tables)


def _row_tensors(step: StepTensors) -> Iterator[Tensor]:
    """Yield each tensor that has one entry per row."""
    yield from (step.token_ids, step.positions, step.contexts)
    yield from (group.slots for group in step.groups)
