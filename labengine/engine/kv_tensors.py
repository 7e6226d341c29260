"""The pool's memory: K and V of every slot, in one tensor per layer position; and states, one per block and layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from labengine.config import ConfigError
from labengine.engine.mapped_memory import mapped_zeros
from labengine.engine.pool_size import require_memory
from labengine.engine.recurrence_sizes import LayerState


@dataclass(frozen=True, slots=True)
class LayerKV:
    """One layer's share of the pool: keys and values, each [num_blocks, block_size, num_kv_heads, head_dim]."""

    keys: Tensor
    values: Tensor


class KVTensors:
    """K and V of all layers, and the states of layers without attention, allocated once.

    layer_groups[i] is the KV-cache group of layer i. The n-th layers of all groups share one tensor: a block id belongs
    to one group at a time, so the groups draw on one pool. A model with one group has a separate tensor per layer.
    Two groups that hold the same block id share its memory and overwrite each other's KV; nothing here prevents it.
    Layers with a state have separate tensors, with a state in every block: a block costs the KV of its tokens and one
    state of each such layer, whichever of the two it is used for.
    """

    def __init__(
        self,
        num_blocks: int,
        layer_groups: Sequence[int],
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
        states: Sequence[LayerState] = (),
    ) -> None:
        """Raise ConfigError if the pool does not fit into the device's free memory.

        states: the states of each layer, empty for a layer with attention; () for a model without states.
        """
        self.num_blocks = num_blocks
        self.device = device
        self.layer_groups = tuple(layer_groups)
        self._tensor_of_layer = [self.layer_groups[:layer].count(group) for layer, group in enumerate(layer_groups)]
        self.block_bytes = bytes_of_a_block(layer_groups, block_size, num_kv_heads, head_dim, dtype, states)
        self.num_bytes = num_blocks * self.block_bytes
        require_memory(num_blocks, block_size, self.block_bytes, device)
        shape = (2, num_blocks, block_size, num_kv_heads, head_dim)
        self._tensors = [self._zeros(shape, dtype) for _ in range(_kv_layers(layer_groups, states))]
        self._states = {
            layer: {part.name: self._zeros((num_blocks, *part.shape), part.dtype(dtype)) for part in state}
            for layer, state in enumerate(states)
            if state
        }

    def _zeros(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        if self.device.type == "cpu":
            return mapped_zeros(shape, dtype)
        return torch.zeros(*shape, dtype=dtype, device=self.device)

    def release(self) -> None:
        """Free the pool's memory."""
        self._tensors, self._states = [], {}

    def layer(self, layer: int) -> LayerKV:
        """Return the layer's keys and values: views of the pool, to read and write in place."""
        keys, values = self._tensors[self._tensor_of_layer[layer]]
        return LayerKV(keys, values)

    def states(self, layer: int) -> dict[str, Tensor]:
        """Return the layer's states by name, each [num_blocks, ...], without a copy; {} for a layer with attention."""
        return self._states.get(layer, {})

    def block(self, block_id: int, layer: int) -> tuple[Tensor, Tensor]:
        """Return copies of one block's K and V, each [block_size, num_kv_heads, head_dim].

        Raises IndexError, and ConfigError for a layer that keeps a state.
        """
        self._require_block(block_id)
        if not 0 <= layer < len(self.layer_groups):
            raise IndexError(f"no layer {layer}: the model has layers 0 to {len(self.layer_groups) - 1}")
        if layer in self._states:
            with_kv = ", ".join(str(i) for i in range(len(self.layer_groups)) if i not in self._states) or "none"
            raise ConfigError(f"layer {layer} keeps a state instead of K and V; layers with K and V: {with_kv}")
        kv = self.layer(layer)
        return kv.keys[block_id].clone(), kv.values[block_id].clone()

    def read_block(self, group: int, block_id: int) -> dict[str, Tensor]:
        """Return CPU copies of a block's KV or states in all layers of a group. Raises IndexError.

        Keys are "layers.6.keys", "layers.6.values" and so on; each tensor is [block_size, num_kv_heads, head_dim]. A
        state group has "layers.6.conv" and so on, in the shapes of recurrence_sizes.py.
        """
        return {name: view.to("cpu", copy=True) for name, view in self._views(group, block_id).items()}

    def write_block(self, group: int, block_id: int, kv: Mapping[str, Tensor]) -> None:
        """Write a result of read_block, bit for bit, into any block of the group. Changes nothing else.

        Raises IndexError for an unknown block or group, and ValueError, before anything is written, for
        tensors of another group, block size, model or dtype.
        """
        views = self._views(group, block_id)
        if kv.keys() != views.keys():
            raise ValueError(f"a block of group {group} must have {', '.join(views)}, got {', '.join(kv) or 'nothing'}")
        for name, view in views.items():
            tensor = kv[name]
            if tensor.shape != view.shape or tensor.dtype != view.dtype:
                wanted, found = (f"{tensor.dtype} {list(tensor.shape)}" for tensor in (view, tensor))
                raise ValueError(f"{name} of a block of group {group} must be {wanted}, got {found}")
        for name, view in views.items():
            view.copy_(kv[name])

    def copy_block(self, group: int, block_id: int, into_block_id: int) -> None:
        """Copy the KV or the states of all layers of a group from a block into another one, on the device.

        Raises IndexError.
        """
        into = self._views(group, into_block_id)
        for name, view in self._views(group, block_id).items():
            into[name].copy_(view)

    def _views(self, group: int, block_id: int) -> dict[str, Tensor]:
        self._require_block(block_id)
        layers = [layer for layer, its_group in enumerate(self.layer_groups) if its_group == group]
        if not layers:
            raise IndexError(f"no group {group}: the model has groups 0 to {max(self.layer_groups)}")
        views: dict[str, Tensor] = {}
        for layer in layers:
            pool = self._states.get(layer) or {"keys": self.layer(layer).keys, "values": self.layer(layer).values}
            views |= {f"layers.{layer}.{name}": tensor[block_id] for name, tensor in pool.items()}
        return views

    def _require_block(self, block_id: int) -> None:
        if not 0 <= block_id < self.num_blocks:
            raise IndexError(f"no block {block_id}: the pool has blocks 0 to {self.num_blocks - 1}")


def bytes_of_a_block(
    layer_groups: Sequence[int],
    block_size: int,
    num_kv_heads: int,
    head_dim: int,
    dtype: torch.dtype,
    states: Sequence[LayerState] = (),
) -> int:
    """Return the bytes of a block: K and V of its tokens in the layers of the largest group, and its states."""
    kv_bytes = _kv_layers(layer_groups, states) * 2 * block_size * num_kv_heads * head_dim * dtype.itemsize
    return kv_bytes + bytes_of_a_state(dtype, states)


def bytes_of_a_state(dtype: torch.dtype, states: Sequence[LayerState]) -> int:
    """Return the bytes of one state of all layers that have one."""
    return sum(part.num_bytes(dtype) for state in states for part in state)


def _kv_layers(layer_groups: Sequence[int], states: Sequence[LayerState]) -> int:
    """Return the number of layers with K and V in the largest group."""
    has_state = states or [()] * len(layer_groups)
    counts = Counter(group for group, state in zip(layer_groups, has_state, strict=True) if not state)
    return max(counts.values(), default=0)
