"""Paged attention: one file per backend, one contract for all; choice.py picks.

A backend is asked twice. Once per step it prepares what all layers share (indices, masks); then each layer writes its
new keys and values and attends through the block tables.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from labengine.engine.kv_tensors import LayerKV
from labengine.engine.step_tensors import GroupTensors, StepTensors


@dataclass(frozen=True, slots=True)
class AttentionSetting:
    """What a backend has to cope with: the machine, the model's heads and the pool's blocks (tokens per block)."""

    device: torch.device
    dtype: torch.dtype
    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_sizes: tuple[int, ...]


class StepAttention(ABC):
    """The attention of one step and one KV-cache group, as all of the group's layers use it."""

    @abstractmethod
    def write(self, keys: Tensor, values: Tensor, cache: LayerKV) -> None:
        """Write the step's KV [num_tokens, num_kv_heads, head_dim] to its slots; changes nothing else in the cache.

        Rows whose slot is below 0 are written nowhere. Keys and values may be strided views, last dimension apart.
        """

    @abstractmethod
    def attend(self, queries: Tensor, cache: LayerKV, scale: float) -> Tensor:
        """Attend from [num_tokens, num_heads, head_dim], perhaps a strided view, to the cache; gives the same shape.

        The token at position p reads positions 0..p of its request, in a group with a window only the last `window` of
        them, through its block table. No other slot is read: unused table entries may hold anything, slots that nobody
        wrote, or that are others' by now, may hold NaN. Call after `write` of the same layer.
        """


class AttentionBackend(ABC):
    """One way to compute paged attention."""

    name: ClassVar[str]
    virtue: ClassVar[str]
    """Why one would choose it: half a sentence."""
    is_capturable: ClassVar[bool] = False
    """True when decode steps can be recorded into a CUDA graph: fixed shapes, nothing read back by the host.

    Such a backend accepts padding (slots below 0, contexts of 0), and block tables wider than anybody needs.
    """

    def __init__(self, setting: AttentionSetting) -> None:
        self.setting = setting

    @classmethod
    @abstractmethod
    def refusal(cls, setting: AttentionSetting) -> str | None:
        """Why it cannot serve this setting, as half a sentence; None when it can."""

    @abstractmethod
    def prepare(self, step: StepTensors, group: GroupTensors) -> StepAttention:
        """Work out once what this step's layers share."""
