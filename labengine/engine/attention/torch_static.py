"""Paged attention for decodes in torch ops with fixed shapes, which can be recorded as a graph on any device."""

from __future__ import annotations

import torch
from torch import Tensor

from labengine.engine.attention import StepAttention
from labengine.engine.attention.flash_attn import torch_store
from labengine.engine.attention.torch_gather import TorchGather
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.step_tensors import GroupTensors, StepTensors


class StaticTorch(TorchGather):
    """Computes decodes from the step's tensors at the time they run, and other steps like TorchGather.

    Slower than TorchGather: each row reads as many slots as the step's longest context, and masks those of others.
    """

    name = "torch_static"
    advantage = "plain torch with fixed shapes: decodes can be recorded"
    is_capturable = True

    def prepare(self, step: StepTensors, group: GroupTensors) -> StepAttention:
        """Return a decode that reads the step's tensors in each layer; other steps are batched on the host."""
        return StaticDecode(self, step, group) if step.is_decode else super().prepare(step, group)

    def write(self, keys: Tensor, values: Tensor, cache: LayerKV, slots: Tensor) -> None:
        """Write KV [num_requests, num_kv_heads, head_dim] to the slots; a slot below 0 is not written."""
        torch_store(keys, values, cache, slots)

    def read(self, pool: Tensor, slots: Tensor, is_read: Tensor) -> Tensor:
        """Return K or V of the slots, [num_requests, positions, num_kv_heads, head_dim]; zeros for unread positions.

        A weight of 0 does not mask V, because the slot may hold NaN, and 0 * NaN is NaN.
        """
        return pool.flatten(0, 1)[slots].masked_fill(~is_read[..., None, None], 0)

    def weights(self, scores: Tensor, is_read: Tensor) -> Tensor:
        """Return the softmax over the positions read; zeros for padding, which reads none.

        Both are [num_requests, num_heads, positions]; scores of unread positions may be NaN.
        """
        return scores.masked_fill(~is_read, -torch.inf).softmax(-1).masked_fill(~is_read, 0)


class StaticDecode(StepAttention):
    """A step in which row r is request r; every row addresses all positions of the longest context."""

    def __init__(self, backend: StaticTorch, step: StepTensors, group: GroupTensors) -> None:
        self._backend = backend
        self._group = group
        self._contexts = step.contexts
        self._positions = torch.arange(max(step.context_lens), device=group.slots.device)

    def write(self, keys: Tensor, values: Tensor, cache: LayerKV) -> None:
        """Write the KV to the step's slots."""
        self._backend.write(keys, values, cache, self._group.slots)

    def attend(self, queries: Tensor, cache: LayerKV, scale: float) -> Tensor:
        """Attend in float32 over the addressed slots."""
        num_heads, num_kv_heads = queries.shape[1], cache.keys.shape[2]
        is_read = self._is_read()
        slots = self._slots(is_read)
        keys, values = (
            self._backend.read(pool, slots, is_read).repeat_interleave(num_heads // num_kv_heads, dim=2).float()
            for pool in (cache.keys, cache.values)
        )
        scores = torch.einsum("rhd,rphd->rhp", queries.float(), keys) * scale
        weights = self._backend.weights(scores, is_read.unsqueeze(1).expand_as(scores))
        return torch.einsum("rhp,rphd->rhd", weights, values).to(queries.dtype)

    def _is_read(self) -> Tensor:
        """Return bool [num_requests, positions]: True inside the request's context and window."""
        ends = self._contexts.unsqueeze(1)
        is_read = self._positions < ends
        window = self._group.window
        return is_read if window is None else is_read & (self._positions >= ends - window)

    def _slots(self, is_read: Tensor) -> Tensor:
        """Return int64 [num_requests, positions], addressed like in a kernel by row * width + column.

        Unread positions are addressed through column 0, as other entries may be undefined.
        """
        tables, size = self._group.block_tables, self._group.block_size
        num_rows, width = tables.shape
        columns = (self._positions // size).where(is_read, 0)
        rows = torch.arange(num_rows, device=tables.device).unsqueeze(1)
        block_ids = torch.take(tables, rows * width + columns).clamp(min=0)
        return block_ids.long() * size + self._positions % size
