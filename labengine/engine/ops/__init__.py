"""Ops around attention, fused where that saves passes over memory: one file per implementation.

modules.py, model.py and rope.py define the computation. torch_ops.py just calls them, and every other implementation
gives the same numbers, rounded in the same places.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from labengine.engine.attention import StepAttention
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.modules import RMSNorm
from labengine.engine.rope import Rotation

HeadNorms = tuple[RMSNorm, RMSNorm] | None
"""The norms of queries and keys, of one class and with the same eps."""
Activation = Callable[[Tensor], Tensor]
"""torch's silu, or gelu_tanh from torch_ops.py."""


@dataclass(frozen=True, slots=True)
class OpsSetting:
    """The requirements of a model's layers: the machine, their sizes, norms and activation."""

    device: torch.device
    dtype: torch.dtype
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm: type[RMSNorm]
    has_head_norms: bool
    activation: Activation
    rotates_whole_heads: bool = True


class Ops(ABC):
    """One implementation of the ops around attention. CUDA graphs can record them, as the host reads nothing back."""

    name: ClassVar[str]
    advantage: ClassVar[str]
    """The reason to prefer this implementation, as half a sentence."""

    @classmethod
    @abstractmethod
    def refusal(cls, setting: OpsSetting) -> str | None:
        """Return why it cannot serve these layers, as half a sentence; None if it can."""

    def adopt(self, model: nn.Module) -> None:  # noqa: B027 (most have nothing to do)
        """Lay out the model's weights for the products. Called once, before the first step."""

    @abstractmethod
    def add_norm(self, stream: Tensor, part: Tensor | None, norm: RMSNorm) -> tuple[Tensor, Tensor]:
        """Add a part to the residual stream, both [num_tokens, size], and normalize; return (normed, new stream).

        Both arguments may be overwritten, so use the returned tensors.
        """

    def norm(self, hidden: Tensor, norm: RMSNorm) -> Tensor:
        """Normalize [num_tokens, size]."""
        return self.add_norm(hidden, None, norm)[0]

    @abstractmethod
    def rotate(self, heads: Tensor, rotation: Rotation, norm: RMSNorm | None = None) -> Tensor:
        """Rotate queries or keys [num_tokens, num_heads, head_dim], possibly a strided view, after norming each head.

        Returns the rotated heads: a new tensor, or the overwritten argument.
        """

    def rotate_and_write(
        self, heads: Tensor, num_kv_heads: int, rotation: Rotation, norms: HeadNorms, attention: StepAttention,
        cache: LayerKV,
    ) -> Tensor | None:  # fmt: skip
        """Norm and rotate queries and keys, write keys and values, and return the queries; None if nothing is done.

        After None the caller rotates and writes separately. heads: queries, keys and values, [num_tokens, heads,
        head_dim], which may be overwritten. An implementation takes the slots from attention.plain_slots; without them
        it returns None.
        """
        return None

    @abstractmethod
    def gated(self, gate_up: Tensor, activation: Activation) -> Tensor:
        """Return activation(gate) * up of the halves of [num_tokens, 2 * size]; the result is [num_tokens, size]."""
