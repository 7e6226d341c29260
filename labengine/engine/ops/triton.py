"""The ops as Triton kernels, each in one pass over memory instead of torch's several."""

from __future__ import annotations

from functools import cache
from typing import Literal

from torch import Tensor
from torch.nn.functional import silu

from labengine.engine.attention import AttentionSetting, StepAttention
from labengine.engine.attention.triton import TritonAttention, is_interpreted
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.modules import OffsetRMSNorm, RMSNorm
from labengine.engine.ops import Activation, HeadNorms, Ops, OpsSetting
from labengine.engine.ops.torch_ops import gelu_tanh
from labengine.engine.ops.trial_layer import take_trial_layer
from labengine.engine.rope import Rotation
from labengine.engine.trial_launch import launch_refusal

KERNELS_WORDS: dict[Activation, Literal["silu", "gelu_tanh"]] = {silu: "silu", gelu_tanh: "gelu_tanh"}


class TritonOps(Ops):
    """labengine's own kernels, compiled on first use."""

    name = "triton"
    advantage = "our own fused kernels"

    @classmethod
    def refusal(cls, setting: OpsSetting) -> str | None:
        """Refuse settings that Triton attention or the kernels do not support, and a failing trial launch."""
        if not setting.rotates_whole_heads:
            return "it can rotate only whole heads, and this model does not"
        if setting.norm not in (RMSNorm, OffsetRMSNorm) or setting.activation not in KERNELS_WORDS:
            return "it has no kernels for the model's norm or activation"
        refusal = TritonAttention.unsupported(AttentionSetting(setting.device, setting.dtype, 1, 1, 64, (16,)))
        return refusal if refusal is not None or is_interpreted() else _trial(setting)

    def add_norm(self, stream: Tensor, part: Tensor | None, norm: RMSNorm) -> tuple[Tensor, Tensor]:
        """Add and normalize; see Ops."""
        from labengine.engine.ops.triton_ops import add_rms_norm

        return add_rms_norm(stream, part, norm.weight, norm.eps, norm.offset)

    def rotate(self, heads: Tensor, rotation: Rotation, norm: RMSNorm | None = None) -> Tensor:
        """Norm and rotate in place; see Ops."""
        from labengine.engine.ops.triton_ops import rotate_heads

        weight, eps, offset = (None, 0.0, False) if norm is None else (norm.weight, norm.eps, norm.offset)
        rotate_heads(heads, rotation.cos, rotation.sin, weight, eps, offset)
        return heads

    def rotate_and_write(
        self, heads: Tensor, num_kv_heads: int, rotation: Rotation, norms: HeadNorms, attention: StepAttention,
        cache: LayerKV,
    ) -> Tensor | None:  # fmt: skip
        """Norm, rotate and write in one launch, if the attention's own write does nothing else; see Ops."""
        from labengine.engine.ops.triton_ops import rotate_and_write

        slots = attention.plain_slots
        if slots is None:
            return None
        weights, eps, offset = None, 0.0, False
        if norms is not None:
            weights, eps, offset = (norms[0].weight, norms[1].weight), norms[0].eps, norms[0].offset
        rotate_and_write(heads, num_kv_heads, (rotation.cos, rotation.sin), weights, eps, offset, slots, cache)
        return heads[:, : -2 * num_kv_heads]

    def gated(self, gate_up: Tensor, activation: Activation) -> Tensor:
        """Return activation(gate) * up; see Ops."""
        from labengine.engine.ops.triton_ops import gated

        return gated(gate_up, KERNELS_WORDS[activation])


@cache
def _trial(setting: OpsSetting) -> str | None:
    return launch_refusal(setting.device, lambda: take_trial_layer(TritonOps(), setting))
