"""The ops in plain torch: the modules' own words, on any device and in any dtype."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import gelu

from labengine.engine.modules import RMSNorm
from labengine.engine.ops import Activation, Ops
from labengine.engine.rope import Rotation


def gelu_tanh(hidden: Tensor) -> Tensor:
    """Gelu by its tanh approximation (Gemma)."""
    return gelu(hidden, approximate="tanh")


class TorchOps(Ops):
    """What the modules say, one torch op after the other."""

    name = "torch"
    virtue = "plain torch: any device, any dtype"

    @classmethod
    def refusal(cls, device: torch.device, dtype: torch.dtype) -> str | None:
        """It can serve anything."""
        return None

    def add_norm(self, stream: Tensor, part: Tensor | None, norm: RMSNorm) -> tuple[Tensor, Tensor]:
        """See Ops."""
        stream = stream if part is None else stream + part
        return norm(stream), stream

    def turn(self, heads: Tensor, rotation: Rotation, norm: RMSNorm | None = None) -> Tensor:
        """See Ops."""
        return rotation.turn(heads if norm is None else norm(heads))

    def gated(self, gate_up: Tensor, activation: Activation) -> Tensor:
        """See Ops."""
        gate, up = gate_up.chunk(2, dim=-1)
        return activation(gate) * up
