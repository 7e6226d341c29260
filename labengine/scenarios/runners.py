"""Runners with a defect below the plan, in a separate module so that listing scenarios does not load torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar

import torch
from torch import Tensor

from labengine.config import GroupSpec
from labengine.core.step_plan import StepPlan
from labengine.engine.attention.torch_static import StaticTorch
from labengine.engine.forward.static_step import StaticStep
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.model_runner import ModelRunner
from labengine.engine.static_runner import StaticRunner
from labengine.engine.step_tensors import GroupTensors, StepTensors

# -- vLLM 43810 --------------------------------------------------------------------------------------------------------


class IndexesFromTheEnd(StaticTorch):
    """Writes slot -1 as Python indexes it: block -1 // block_size is the last one, -1 % block_size its last offset."""

    def write(self, keys: Tensor, values: Tensor, cache: LayerKV, slots: Tensor) -> None:
        """Write every row, including padding."""
        cache.keys[slots // cache.keys.shape[1], slots % cache.keys.shape[1]] = keys
        cache.values[slots // cache.keys.shape[1], slots % cache.keys.shape[1]] = values


class WritesTheLastSlot(StaticRunner):
    """Padded rows write the pool's last slot."""

    attention = IndexesFromTheEnd


# -- SGLang 32477 ------------------------------------------------------------------------------------------------------


class MasksWeightsOnly(StaticTorch):
    """A kernel that loads whole tiles: past a context's end it reads block 0, and masks the scores but not the values.

    A padded row attends to nothing, and its result is undefined (NaN), as a graph's padding may be.
    """

    def read(self, pool: Tensor, slots: Tensor, is_read: Tensor) -> Tensor:
        """Return the content of the slots; slots that are not read are in the reserved block."""
        return pool.flatten(0, 1)[torch.where(is_read, slots, slots % pool.shape[1])]

    def weights(self, scores: Tensor, is_read: Tensor) -> Tensor:
        """Return the softmax over the slots that are read; 0 for other slots, NaN for rows that read nothing."""
        return scores.masked_fill(~is_read, -torch.inf).softmax(-1)


class WritesReservedSlots(MasksWeightsOnly):
    """Padded rows write slot 0 of their reserved block."""

    def write(self, keys: Tensor, values: Tensor, cache: LayerKV, slots: Tensor) -> None:
        """Write every row; padding goes to slot 0."""
        super().write(keys, values, cache, slots.clamp(min=0))


class RefusesNaN(StaticRunner):
    """The runner before the pull request, with labengine's sampler: the reserved block receives padding's KV."""

    attention: ClassVar[type[StaticTorch]] = WritesReservedSlots


class WritesPadding(RefusesNaN):
    """The runner before the pull request: its sampler does not check for NaN."""

    def sample(self, plan: StepPlan, logits: Tensor) -> list[int]:
        """Sample from logits with NaN replaced by 0."""
        return super().sample(plan, logits.nan_to_num())


class SkipsPadding(WritesPadding):
    """The pull request: no row writes to the reserved block, which keeps its zeros."""

    attention = MasksWeightsOnly


# -- Diffulex 44 -------------------------------------------------------------------------------------------------------


class KeepsSlots(StaticStep):
    """Forgets one tensor when rows become padding."""

    def pad(self, rows: StepTensors, first: int) -> None:
        """Turn rows into padding, but keep the slots that they write to."""
        slots = [group.slots.clone() for group in rows.groups]
        super().pad(rows, first)
        for group, before in zip(rows.groups, slots, strict=True):
            group.slots.copy_(before)


class WritesStaleSlots(StaticRunner):
    """Padded rows write the slots of the requests that had these rows before."""

    static_step = KeepsSlots


# -- nano-vLLM 190 -----------------------------------------------------------------------------------------------------


class PromptsOnly(StaticStep):
    """Captured for the longest prompt: a decode after it needs one more column."""

    longest_prompt = 16

    def table_width(self, spec: GroupSpec) -> int:
        """Return the number of columns that a prompt of `longest_prompt` tokens fills."""
        return -(-self.longest_prompt // spec.block_size)


class OneColumnShort(StaticRunner):
    """Block tables of recorded decodes end with the longest prompt."""

    static_step = PromptsOnly


class ClearsColumns(StaticStep):
    """The second half of the fix: clears columns that a step does not fill."""

    def fill(self, step: StepTensors) -> None:
        """Clear the rows' block tables (-1), then copy."""
        for group in self.rows(step.num_requests).groups:
            group.block_tables.fill_(-1)
        super().fill(step)


class WideAndCleared(StaticRunner):
    """A column for every block, and no stale ids after a request's blocks."""

    static_step = ClearsColumns


class OneMore(PromptsOnly, ClearsColumns):
    """The proposal: one more column than the longest prompt fills, and columns are cleared."""

    def table_width(self, spec: GroupSpec) -> int:
        """Return one more column."""
        return super().table_width(spec) + 1


class OneColumnMore(StaticRunner):
    """Block tables of recorded decodes end one block after the longest prompt."""

    static_step = OneMore


# -- vLLM 7018 and ssd 23 ----------------------------------------------------------------------------------------------


class EmptyTablesForMisses(ModelRunner):
    """Fills the block tables of requests with a prefix hit; the rows of other requests in the batch stay 0."""

    def step_tensors(self, plan: StepPlan) -> StepTensors:
        """Return the plan as tensors; beside a prompt with a hit, tables of prompts without one are zeros."""
        step = super().step_tensors(plan)
        if not _has_hit(plan):
            return step
        misses = torch.tensor([request.start == 0 for request in plan.scheduled])
        return replace(step, groups=tuple(_with_tables(group, 0, misses) for group in step.groups))


class NoTables(ModelRunner):
    """Reads the pool as if it were contiguous, like a kernel that does not get the block table."""

    def step_tensors(self, plan: StepPlan) -> StepTensors:
        """Return the plan as tensors; a prompt with a hit makes the kernel read blocks 0, 1, 2 ... in every row."""
        step = super().step_tensors(plan)
        if not _has_hit(plan):
            return step
        return replace(step, groups=tuple(_with_tables(group, _columns(group)) for group in step.groups))


def _has_hit(plan: StepPlan) -> bool:
    """Return True if a prompt of the batch continues after computed tokens."""
    return any(request.start and request.num_tokens > 1 for request in plan.scheduled)


def _columns(group: GroupTensors) -> Tensor:
    return torch.arange(group.block_tables.shape[1], dtype=torch.int32)


def _with_tables(group: GroupTensors, ids: Tensor | int, rows: Tensor | None = None) -> GroupTensors:
    """Return the group's tensors with other block ids in these rows; None for all."""
    tables = group.block_tables.clone()
    tables[slice(None) if rows is None else rows] = ids
    return replace(group, block_tables=tables)


# -- vLLM 38715 --------------------------------------------------------------------------------------------------------


class LastRequestFirst(ModelRunner):
    """Computes a step's requests one after the other, in reverse: the last one reads before the first one writes.

    No engine is known to do this; a hit on a block of the same step rules this order out.
    """

    def forward(self, plan: StepPlan) -> Tensor:
        """Compute each request as a separate step; return the logits in the plan's order."""
        if len(plan.scheduled) < 2:
            return super().forward(plan)
        alone = [replace(plan, scheduled=(request,)) for request in reversed(plan.scheduled)]
        return torch.cat([super(LastRequestFirst, self).forward(part).clone() for part in alone][::-1])


# -- vLLM 48481 --------------------------------------------------------------------------------------------------------


class ZeroesNewBlocks(ModelRunner):
    """Clears a step's new blocks, as for models whose groups have different dtypes: stale bits may be NaN.

    On the device the clearing is queued with the step, and a load does not wait for it, so the load may come first.
    """

    def forward(self, plan: StepPlan) -> Tensor:
        """Clear the blocks, then compute."""
        for block_id in self.cleared(plan):
            for layer in range(self.num_layers):
                cache = self.kv_tensors.layer(layer)
                cache.keys[block_id], cache.values[block_id] = 0, 0
        return super().forward(plan)

    def cleared(self, plan: StepPlan) -> set[int]:
        """Return the blocks allocated for this step: those to compute, and those loaded."""
        return _to_compute(plan, self.kv_tensors.layer(0).keys.shape[1]) | {load.block_id for load in plan.loads}


class SkipsLoadedBlocks(ZeroesNewBlocks):
    """The pull request: does not clear blocks filled by a load."""

    def cleared(self, plan: StepPlan) -> set[int]:
        """Return the blocks allocated for tokens to compute."""
        return super().cleared(plan) - {load.block_id for load in plan.loads}


def _to_compute(plan: StepPlan, block_size: int) -> set[int]:
    """Return the blocks that hold no token from before this step."""
    return {
        block_id
        for request in plan.scheduled
        for table in request.block_tables
        for block_id in table[-(-request.start // block_size) :]
    }


# -- vLLM 45704 --------------------------------------------------------------------------------------------------------


class StoresBeforeTheWrite(ModelRunner):
    """A store's copies run on a separate stream, and nothing makes them wait for the step's kernels.

    Here every copy comes first; on a device it is a race.
    """

    _copied: Mapping[tuple[int, int], dict[str, Tensor]] = MappingProxyType({})

    def forward(self, plan: StepPlan) -> Tensor:
        """Run the copies of the step's stores, then compute."""
        places = [(save.group, save.block_id) for save in plan.saves]
        self._copied = {place: super(StoresBeforeTheWrite, self).read_block(*place) for place in places}
        return super().forward(plan)

    def read_block(self, group: int, block_id: int) -> dict[str, Tensor]:
        """Return a store's copy of a block if there is one, else the block's content."""
        return self._copied.get((group, block_id)) or super().read_block(group, block_id)
