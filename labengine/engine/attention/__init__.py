"""Paged attention: one file per backend, one contract for all.

A backend is asked twice. Once per step it prepares what all layers share (indices, masks); then each layer writes its
new keys and values and attends through the block tables.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from labengine.engine.kv_tensors import LayerKV
from labengine.engine.step_tensors import GroupTensors, StepTensors


class StepAttention(ABC):
    """The attention of one step and one KV-cache group, as all of the group's layers use it."""

    @abstractmethod
    def write(self, keys: Tensor, values: Tensor, cache: LayerKV) -> None:
        """Write the step's KV [num_tokens, num_kv_heads, head_dim] to its slots; changes nothing else in the cache."""

    @abstractmethod
    def attend(self, queries: Tensor, cache: LayerKV, scale: float) -> Tensor:
        """Attend from [num_tokens, num_heads, head_dim] to the cache; returns the same shape.

        The token at position p reads positions 0..p of its request, in a group with a window only the last `window` of
        them, through its block table. No other slot is read: unused table entries may hold anything, slots that nobody
        wrote, or that are others' by now, may hold NaN. Call after `write` of the same layer.
        """


class AttentionBackend(ABC):
    """One way to compute paged attention."""

    name: ClassVar[str]

    @abstractmethod
    def prepare(self, step: StepTensors, group: GroupTensors) -> StepAttention:
        """Work out once what this step's layers share."""


def attention_backend() -> tuple[AttentionBackend, str]:
    """The backend to use, and why: one short sentence for the person who asks."""
    from labengine.engine.attention.torch_gather import TorchGather

    return TorchGather(), "plain torch: any device, any block size"
