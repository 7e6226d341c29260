"""On a CPU, weights laid out once as oneDNN's products want them; torch would do it anew for every product."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from labengine.engine.modules import Linear
from labengine.engine.ops.torch_ops import TorchOps

BATCH_HINT = 16
"""The number of rows that the layout should suit; others are computed just as well, if not quite as fast."""


class PackedProduct:
    """hidden x weight^T, the weight in a layout that only oneDNN reads."""

    def __init__(self, weight: Tensor) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), BATCH_HINT)

    def __call__(self, hidden: Tensor, weight: Tensor) -> Tensor:
        """[rows, in_size] to [rows, out_size]; the weight given is not read."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise(hidden, self._packed, None, "none", [], "")
        return out


class OneDNNOps(TorchOps):
    """Plain torch, but for the matrices."""

    name = "onednn"
    virtue = "weights packed for this CPU"

    @classmethod
    def refusal(cls, device: torch.device, dtype: torch.dtype) -> str | None:
        """It needs a CPU, and a torch that packs this dtype there: found out by a small product."""
        if device.type != "cpu":
            return f"it runs on a CPU, and the model is on {device}"
        return _trial(dtype)

    def adopt(self, model: nn.Module) -> None:
        """Pack every matrix that is not yet; its unpacked weight is freed, unless the embedding reads it too."""
        for module in model.modules():
            if isinstance(module, Linear) and module.product is linear:
                module.multiply_by(PackedProduct(module.weight))


@cache
def _trial(dtype: torch.dtype) -> str | None:
    """Packing is no public part of torch, and what it can do depends on the CPU: try, and compare."""
    name = str(dtype).removeprefix("torch.")
    hidden, weight = (torch.linspace(-1, 1, rows * 32).view(rows, 32).to(dtype) for rows in (3, 16))
    try:
        found = PackedProduct(weight)(hidden, weight)
    except (AttributeError, RuntimeError) as error:
        return f"this torch packs no {name} weights on this CPU ({str(error).partition(chr(10))[0]})"
    if not torch.allclose(found.float(), linear(hidden, weight).float(), rtol=2e-2, atol=2e-2):
        return f"packed {name} products are wrong on this CPU"
    return None
