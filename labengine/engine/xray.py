"""Attention weights of one token, block by block: one decode is repeated that reads the pool and writes nothing.

K and V are read through the request's block tables, so the result is what the engine sees, faults included. A request
that no longer holds its blocks is recomputed in a separate pool, and so is a token whose state has moved on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labengine.config import GroupSpec, SamplingParams
from labengine.core.step_plan import ScheduledRequest, StepPlan
from labengine.engine.attention import AttentionSetting, StepAttention
from labengine.engine.attention.torch_gather import TorchGather
from labengine.engine.kv_tensors import KVTensors, LayerKV
from labengine.engine.model import PagedModel
from labengine.engine.model_runner import ModelRunner
from labengine.engine.rope import Rotation, Rotations
from labengine.engine.states import StepStates
from labengine.engine.step_tensors import StepTensors, first_read, slots_read, step_tensors
from labengine.record.snapshot import NULL_BLOCK, RequestState

CHUNK = 512
"""Number of tokens per step when a request is recomputed."""

Source = Literal["pool", "recomputed"]


@dataclass(frozen=True, slots=True)
class BlockAttention:
    """Attention of the token at `position` to each block of its request.

    mass: float32 [layers, heads, blocks]; a head's blocks add up to 1. Column i stands for positions [i * block_size,
    (i + 1) * block_size), up to `position`. layers: the model's layers with attention, which are the rows.
    block_ids: per KV-cache group the block of each column, -1 without one. layer_groups: the group of each row.
    source: "pool", or "recomputed" if blocks were freed.
    """

    position: int
    block_size: int
    mass: NDArray[np.float32]
    layers: tuple[int, ...]
    block_ids: tuple[tuple[int, ...], ...]
    layer_groups: tuple[int, ...]
    windows: tuple[int | None, ...]
    source: Source


class AttentionRecorder(StepAttention):
    """Attention of one query that leaves the cache unchanged and keeps each layer's weights.

    slots: int64 [num_read], the slots of the positions that the query reads. is_last_fresh: the last of them is the
    query's own position, whose K and V are not in a slot yet.
    """

    def __init__(self, slots: Tensor, is_last_fresh: bool, seen: list[Tensor]) -> None:
        self._slots = slots
        self._is_last_fresh = is_last_fresh
        self._seen = seen

    def write(self, keys: Tensor, values: Tensor, cache: LayerKV) -> None:
        """Keep the fresh K and V for `attend`; write nothing."""
        self._fresh = keys, values

    def attend(self, queries: Tensor, cache: LayerKV, scale: float) -> Tensor:
        """Return the attention output, like StepAttention.

        Append the weights, float32 [num_heads, num_read], to `seen`.
        """
        keys, values = (
            self._read(pool, fresh) for pool, fresh in zip((cache.keys, cache.values), self._fresh, strict=True)
        )
        _, num_heads, head_dim = queries.shape
        grouped = queries.view(keys.shape[1], -1, head_dim).float()  # heads that share a KV head are neighbours
        scores = torch.einsum("kgd,rkd->kgr", grouped, keys) * scale
        weights = scores.softmax(-1)
        self._seen.append(weights.flatten(0, 1))
        out = torch.einsum("kgr,rkd->kgd", weights, values)
        return out.reshape(1, num_heads, head_dim).to(queries.dtype)

    def _read(self, pool: Tensor, fresh: Tensor) -> Tensor:
        """Return float32 [num_read, num_kv_heads, head_dim]."""
        kept = pool.view(-1, *pool.shape[2:]).index_select(0, self._slots)
        return (torch.cat((kept, fresh)) if self._is_last_fresh else kept).float()


def attention_by_block(
    runner: ModelRunner, request: RequestState, position: int, *, null_block: int = NULL_BLOCK
) -> BlockAttention:
    """Return the attention weights of the token at `position` of a request; see BlockAttention.

    Raises IndexError for a position without a token. Call it between phases, while no step runs.
    """
    if not 0 <= position < len(request.token_ids):
        last = len(request.token_ids) - 1
        raise IndexError(f"no token at position {position}: the request has positions 0 to {last}")
    model = runner.torch_modules()
    if is_in_pool(runner.groups, request, position, null_block):
        is_fresh = position == request.num_computed_tokens
        mass = _attention_mass(model, runner.kv_tensors, runner.groups, request, position, is_fresh)
        ids = tuple(_shown_ids(spec, table, position, null_block) for spec, table in _tables(runner, request))
        return _result(runner, mass, position, ids, "pool")
    kv, moved = recomputed(runner, request, position)
    mass = _attention_mass(model, kv, runner.groups, moved, position, is_last_fresh=True)
    return _result(runner, mass, position, ((-1,) * mass.shape[2],) * len(runner.groups), "recomputed")


def is_in_pool(groups: Sequence[GroupSpec], request: RequestState, position: int, null_block: int) -> bool:
    """Return True if the request holds all blocks that the token at `position` reads."""
    end = min(position + 1, request.num_computed_tokens)
    if position > request.num_computed_tokens:
        return False
    for spec, table in zip(groups, request.block_tables, strict=True):
        first, last = first_read(position, spec.window) // spec.block_size, -(-end // spec.block_size)
        if spec.kind == "state":
            if position and position != request.num_computed_tokens:
                return False
            first = max(0, last - 1)
        if len(table) < last or any(block in (null_block, NULL_BLOCK) for block in table[first:last]):
            return False
    return True


def _tables(runner: ModelRunner, request: RequestState) -> list[tuple[GroupSpec, tuple[int, ...]]]:
    return list(zip(runner.groups, request.block_tables, strict=True))


def _shown_ids(spec: GroupSpec, table: tuple[int, ...], position: int, null_block: int) -> tuple[int, ...]:
    """Return the blocks of the columns; -1 before the window and for blocks not allocated yet."""
    first = first_read(position, spec.window) // spec.block_size
    columns = range(position // spec.block_size + 1)
    return tuple(table[i] if first <= i < len(table) and table[i] != null_block else NULL_BLOCK for i in columns)


def _result(
    runner: ModelRunner, mass: NDArray[np.float32], position: int, ids: tuple[tuple[int, ...], ...], source: Source
) -> BlockAttention:
    windows = tuple(spec.window for spec in runner.groups)
    layers = attention_layers(runner.model)
    groups = tuple(runner.kv_tensors.layer_groups[layer] for layer in layers)
    return BlockAttention(position, runner.groups[0].block_size, mass, layers, ids, groups, windows, source)


def attention_layers(model: PagedModel) -> tuple[int, ...]:
    """Return the layers with attention."""
    return tuple(layer for layer, state in enumerate(model.config.states) if not state)


@torch.inference_mode()
def _attention_mass(
    model: PagedModel,
    kv: KVTensors,
    groups: Sequence[GroupSpec],
    request: RequestState,
    position: int,
    is_last_fresh: bool,
) -> NDArray[np.float32]:
    """Return float32 [layers, heads, blocks]."""
    seen: list[Tensor] = []
    end = position if is_last_fresh else position + 1
    attention = [
        StepStates.looked_at(_state_block(spec, table, position), position, kv.device)
        if spec.kind == "state"
        else AttentionRecorder(
            slots_read(spec, table, first_read(position, spec.window), end).to(kv.device), is_last_fresh, seen
        )
        for spec, table in zip(groups, request.block_tables, strict=True)
    ]
    step = _one_row(request.token_ids[position], position, kv.device)
    model(step, kv, attention, _rotations(model, step.positions))
    size = groups[0].block_size
    mass = torch.zeros(len(seen), model.config.num_heads, position // size + 1)
    for row, (layer, weights) in enumerate(zip(attention_layers(model), seen, strict=True)):
        first = first_read(position, groups[kv.layer_groups[layer]].window)
        mass[row].index_add_(1, torch.arange(first, position + 1) // size, weights.cpu())
    by_block: NDArray[np.float32] = mass.numpy()
    return by_block


def _state_block(spec: GroupSpec, table: Sequence[int], position: int) -> int:
    """Return the block of the state after `position` tokens; any block for the first token, which reads no state."""
    return table[(position - 1) // spec.block_size] if position else 0


def _one_row(token_id: int, position: int, device: torch.device) -> StepTensors:
    """Return a step of one token. Its groups are empty, as only attention on the cache needs them."""
    token, place, starts, context, row = (
        torch.tensor(values, dtype=torch.int32, device=device)
        for values in ([token_id], [position], [0, 1], [position + 1], [0])
    )
    return StepTensors(token, place, (1,), (position + 1,), starts, context, row, ())


def _rotations(model: PagedModel, positions: Tensor) -> Rotations:
    head_dim = model.config.head_dim
    return {
        rope: Rotation.at(positions, rope.inverse_frequencies(head_dim).to(positions.device), rope.magnitude)
        for rope in model.config.ropes
    }


@torch.inference_mode()
def recomputed(runner: ModelRunner, request: RequestState, position: int) -> tuple[KVTensors, RequestState]:
    """Return a separate pool with the KV of the tokens before `position`, and the request with its tables there."""
    model, groups, pool = runner.torch_modules(), runner.groups, runner.kv_tensors
    config = model.config
    size, dtype = groups[0].block_size, model.norm.weight.dtype
    sizes = (size, config.num_kv_heads, config.head_dim)
    num_blocks = position // size + 1
    kv = KVTensors(len(groups) * num_blocks, pool.layer_groups, *sizes, dtype, pool.device, config.states)
    tables = tuple(
        (g * num_blocks,) * num_blocks if spec.kind == "state" else tuple(range(g * num_blocks, (g + 1) * num_blocks))
        for g, spec in enumerate(groups)
    )
    moved = replace(request, num_computed_tokens=position, block_tables=tables)
    backend = TorchGather(
        AttentionSetting(pool.device, dtype, config.num_heads, config.num_kv_heads, config.head_dim, (size,))
    )
    for start in range(0, position, CHUNK):
        step = step_tensors(_plan(groups, moved, start, min(start + CHUNK, position)), groups, pool.device)
        attention = [
            StepStates.prepared(step, group) if group.is_state else backend.prepare(step, group)
            for group in step.groups
        ]
        model(step, kv, attention, _rotations(model, step.positions))
    return kv, moved


def _plan(groups: Sequence[GroupSpec], request: RequestState, start: int, end: int) -> StepPlan:
    """Return a step that computes positions [start, end) of the request."""
    runs = tuple(
        ((table[0], 0, 1),)
        if spec.kind == "state"
        else tuple((table[p // spec.block_size], p % spec.block_size, 1) for p in range(start, end))
        for spec, table in zip(groups, request.block_tables, strict=True)
    )
    tokens = tuple(request.token_ids[start:end])
    return StepPlan((ScheduledRequest(0, tokens, start, request.block_tables, runs, True, True, SamplingParams(), 0),))
