"""Paged attention: one file per backend, and their common contract.

A backend works in two stages. Once per step it prepares indices and masks, which all layers share. Then each layer
writes its new keys and values, and attends through the block tables.
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
    """The setting that a backend has to serve: the machine, the model's heads, the pool's block sizes and windows.

    windows: one per kind of KV-cache group, in tokens; None is full attention. needs_modules: see
    ModelConfig.needs_modules.
    """

    device: torch.device
    dtype: torch.dtype
    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_sizes: tuple[int, ...]
    windows: tuple[int | None, ...] = (None,)
    needs_modules: str | None = None


class StepAttention(ABC):
    """The attention of one step and one KV-cache group, for all of the group's layers."""

    @abstractmethod
    def write(self, keys: Tensor, values: Tensor, cache: LayerKV) -> None:
        """Write the step's KV [num_tokens, num_kv_heads, head_dim] to its slots; change nothing else in the cache.

        Rows whose slot is below 0 are not written. Keys and values may be strided views with a contiguous last
        dimension.
        """

    @property
    def plain_slots(self) -> Tensor | None:
        """The step's slots, if `write` only copies to them, so that another kernel may write instead.

        None: `write` has to be called.
        """
        return None

    @abstractmethod
    def attend(self, queries: Tensor, cache: LayerKV, scale: float) -> Tensor:
        """Attend from [num_tokens, num_heads, head_dim], possibly a strided view, to the cache; return the same shape.

        The token at position p reads positions 0..p of its request, in a group with a window only the last `window` of
        them, through its block table. No other slot is read: unused table entries are undefined, and slots that were
        never written, or belong to another request, may hold NaN. Call it after `write` of the same layer.
        """

    def attend_into(self, out: Tensor, queries: Tensor, cache: LayerKV, scale: float) -> None:
        """Write the result of `attend` to `out`, which is contiguous."""
        out.copy_(self.attend(queries, cache, scale))


class AttentionBackend(ABC):
    """One way to compute paged attention."""

    name: ClassVar[str]
    advantage: ClassVar[str] = ""
    """The reason for which labengine prefers this backend, as half a sentence."""
    is_capturable: ClassVar[bool] = False
    """True if decode steps can be recorded into a CUDA graph: fixed shapes, nothing read back by the host.

    Such a backend accepts padding (slots below 0, contexts of 0) and block tables with unused columns.
    """

    def __init__(self, setting: AttentionSetting) -> None:
        self.setting = setting

    @classmethod
    @abstractmethod
    def refusal(cls, setting: AttentionSetting) -> str | None:
        """Return why the backend cannot serve this setting, as half a sentence; None if it can."""

    @abstractmethod
    def prepare(self, step: StepTensors, group: GroupTensors) -> StepAttention:
        """Compute the indices and masks that this step's layers share."""
