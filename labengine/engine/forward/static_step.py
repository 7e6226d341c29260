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
            groups=tuple(_static_group(spec, max_num_seqs, max_context, device) for spec in groups),
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
        for static, fresh, padding in self._row_tensors(step):
            static[:now].copy_(fresh)
            if now < before:
                static[now:before].fill_(padding)
        for ours, theirs in zip(self._step.groups, step.groups, strict=True):
            width = min(ours.block_tables.shape[1], theirs.block_tables.shape[1])
            ours.block_tables[:now, :width].copy_(theirs.block_tables[:, :width])
        self._num_filled = now

    def _row_tensors(self, step: StepTensors) -> Iterator[tuple[Tensor, Tensor, int]]:
        """Yield each tensor with an entry per row: ours, the step's, and the value of padding."""
        ours = self._step
        yield ours.token_ids, step.token_ids, 0
        yield ours.positions, step.positions, 0
        yield ours.contexts, step.contexts, 0
        for static, fresh in zip(ours.groups, step.groups, strict=True):
            yield static.slots, fresh.slots, NOWHERE


def _static_group(spec: GroupSpec, max_num_seqs: int, max_context: int, device: torch.device) -> GroupTensors:
    width = -(-max_context // spec.block_size)
    slots = torch.full((max_num_seqs,), NOWHERE, dtype=torch.int32, device=device)
    tables = torch.zeros(max_num_seqs, width, dtype=torch.int32, device=device)
    return GroupTensors(spec.block_size, spec.window, slots, tables)
