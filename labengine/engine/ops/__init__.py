"""What surrounds attention, where it pays to have it in one pass over memory: one file per way, choice.py picks.

What each op computes is written in the modules themselves (modules.py, layers.py, rope.py): torch_ops.py calls just
these, and every other way gives the same numbers, rounded at the same places.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from labengine.engine.modules import RMSNorm
from labengine.engine.rope import Rotation

Activation = Callable[[Tensor], Tensor]
"""torch's silu, or gelu_tanh of torch_ops.py."""


class Ops(ABC):
    """One way to compute what surrounds attention. The host reads nothing back: CUDA graphs can record all of it."""

    name: ClassVar[str]
    virtue: ClassVar[str]
    """Why one would choose it: half a sentence."""

    @classmethod
    @abstractmethod
    def refusal(cls, device: torch.device, dtype: torch.dtype) -> str | None:
        """Why it cannot serve a model there, as half a sentence; None when it can."""

    def adopt(self, model: nn.Module) -> None:  # noqa: B027 (most have nothing to do)
        """Called once before the first step: lay out the weights as the products want them."""

    @abstractmethod
    def add_norm(self, stream: Tensor, part: Tensor | None, norm: RMSNorm) -> tuple[Tensor, Tensor]:
        """Add a part to the residual stream, both [num_tokens, size], and normalize; gives (normed, the new stream).

        Both arguments may be overwritten: use what is returned.
        """

    def norm(self, hidden: Tensor, norm: RMSNorm) -> Tensor:
        """Normalize [num_tokens, size]."""
        return self.add_norm(hidden, None, norm)[0]

    @abstractmethod
    def turn(self, heads: Tensor, rotation: Rotation, norm: RMSNorm | None = None) -> Tensor:
        """Turn queries or keys [num_tokens, num_heads, head_dim], a strided view perhaps, after norming each head.

        Gives the turned heads: a new tensor, or the same one overwritten.
        """

    @abstractmethod
    def gated(self, gate_up: Tensor, activation: Activation) -> Tensor:
        """activation(gate) * up, the halves of [num_tokens, 2 * size]; [num_tokens, size]."""
