"""The ops in plain torch, by the modules' definitions; on a CPU also with weights laid out once for oneDNN."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear

from labengine.engine.modules import Linear, RMSNorm
from labengine.engine.ops import Activation, Ops, OpsSetting
from labengine.engine.rope import Rotation


def gelu_tanh(hidden: Tensor) -> Tensor:
    """Return GELU in its tanh approximation (Gemma)."""
    return gelu(hidden, approximate="tanh")


class TorchOps(Ops):
    """The modules' definitions, one torch op at a time."""

    name = "torch"
    advantage = "plain torch: any device, any dtype"

    @classmethod
    def refusal(cls, setting: OpsSetting) -> str | None:
        """Return None, as every device and dtype is served."""
        return None

    def add_norm(self, stream: Tensor, part: Tensor | None, norm: RMSNorm) -> tuple[Tensor, Tensor]:
        """Add and normalize; see Ops."""
        stream = stream if part is None else stream + part
        return norm(stream), stream

    def rotate(self, heads: Tensor, rotation: Rotation, norm: RMSNorm | None = None) -> Tensor:
        """Norm and rotate; see Ops."""
        return rotation.rotate(heads if norm is None else norm(heads))

    def gated(self, gate_up: Tensor, activation: Activation) -> Tensor:
        """Return activation(gate) * up; see Ops."""
        gate, up = gate_up.chunk(2, dim=-1)
        return activation(gate) * up


BATCH_HINT = 16
"""Number of rows for which the layout is optimized; others are a little slower."""


class PackedProduct:
    """hidden x weight^T, with the weight in a layout that only oneDNN reads."""

    def __init__(self, weight: Tensor) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), BATCH_HINT)

    def __call__(self, hidden: Tensor, weight: Tensor) -> Tensor:
        """Map [rows, in_size] to [rows, out_size]; the `weight` argument is not read."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise(hidden, self._packed, None, "none", [], "")
        return out


class OneDNNOps(TorchOps):
    """Plain torch, except for the matrices."""

    name = "onednn"
    advantage = "weights packed for this CPU"

    @classmethod
    def refusal(cls, setting: OpsSetting) -> str | None:
        """Refuse devices other than a CPU, and a torch that cannot pack this dtype there (tested by a product)."""
        if setting.device.type != "cpu":
            return f"it runs on a CPU, but the model is on {setting.device}"
        return _trial(setting.dtype)

    def adopt(self, model: nn.Module) -> None:
        """Pack all matrices; an unpacked weight is freed, unless the embedding reads it too."""
        for module in model.modules():
            if isinstance(module, Linear) and module.product is linear:
                module.multiply_by(PackedProduct(module.weight))


@cache
def _trial(dtype: torch.dtype) -> str | None:
    """Return why packing fails, by a comparison. Packing is not public in torch, and depends on the CPU."""
    name = str(dtype).removeprefix("torch.")
    hidden, weight = (torch.linspace(-1, 1, rows * 32).view(rows, 32).to(dtype) for rows in (3, 16))
    try:
        found = PackedProduct(weight)(hidden, weight)
    except (AttributeError, RuntimeError) as error:
        return f"this torch cannot pack {name} weights on this CPU ({str(error).partition(chr(10))[0]})"
    if not torch.allclose(found.float(), linear(hidden, weight).float(), rtol=2e-2, atol=2e-2):
        return f"packed {name} products give wrong results on this CPU"
    return None
