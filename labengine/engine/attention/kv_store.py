"""Writing KV to its slots for backends that bring no store of their own: by Triton where it is, else by torch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from labengine.engine.kv_tensors import LayerKV

Store = Callable[[Tensor, Tensor, LayerKV, Tensor], None]
"""Keys and values [num_tokens, num_kv_heads, head_dim], the layer's KV, and slots; below 0 means nowhere."""


def best_store(device: torch.device) -> Store:
    """One kernel by Triton on a GPU, else a handful by torch. Both may be recorded into a graph."""
    if device.type == "cuda":
        try:
            from labengine.engine.attention.triton import write_kv
        except ImportError:
            return torch_store
        return write_kv
    return torch_store


def torch_store(keys: Tensor, values: Tensor, cache: LayerKV, slots: Tensor) -> None:
    """Without asking the device anything: a row that goes nowhere repeats what another row, or the cache, has there.

    A padding row does again what the row with the highest slot does. Is there none but padding, slot 0 is written what
    it holds.
    """
    rows = torch.where(slots >= 0, torch.arange(len(slots), device=slots.device), slots.argmax())
    targets = slots[rows]
    is_written = (targets >= 0).view(-1, 1, 1)
    targets = targets.clamp(min=0).long()
    for fresh, pool in ((keys, cache.keys), (values, cache.values)):
        by_slot = pool.view(-1, *pool.shape[2:])
        by_slot.index_copy_(0, targets, torch.where(is_written, fresh[rows], by_slot[targets]))
