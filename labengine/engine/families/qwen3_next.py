"""Qwen3-Next and Qwen3.5: gated delta nets, and attention in every few layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from labengine.engine.families import llama, qwen3
from labengine.engine.layer_plan import FULL, LINEAR
from labengine.engine.layers import Family, GatedAttention
from labengine.engine.mixers import DeltaNet, DeltaNetByKeyHead
from labengine.engine.mixture_sizes import MixtureSizes
from labengine.engine.model_files.config_fields import (
    EXPERTS_NAMES,
    Count,
    HeadDim,
    Kernel,
    NumExperts,
    PartialRopeFields,
    Size,
)
from labengine.engine.model_files.json_file import relation_error
from labengine.engine.modules import OffsetRMSNorm
from labengine.engine.recurrence_sizes import DeltaNetSizes


class DeltaNetFields(PartialRopeFields):
    """Qwen3.5: gated delta nets, and attention in every few layers."""

    default_share: ClassVar = 0.25
    head_dim: HeadDim | None = 256
    full_attention_interval: Count = 4
    layer_types: Annotated[list[Literal["full_attention", "linear_attention"]], Field(min_length=1)] | None = None  # type: ignore[assignment]
    linear_conv_kernel_dim: Kernel = 4
    linear_key_head_dim: Size = 128
    linear_value_head_dim: Size = 128
    linear_num_key_heads: Count = 16
    linear_num_value_heads: Count = 32

    @model_validator(mode="after")
    def _value_heads_divide(self) -> Self:
        values, keys = self.linear_num_value_heads, self.linear_num_key_heads
        if values % keys:
            text = "linear_num_value_heads must be a multiple of linear_num_key_heads, got {values} and {keys}"
            raise relation_error(text, values=values, keys=keys)
        return self

    @property
    def layer_kinds(self) -> Sequence[str]:
        """layer_types; without it, attention in every few layers."""
        interval = self.full_attention_interval
        return self.layer_types or [
            LINEAR if (layer + 1) % interval else FULL for layer in range(self.num_hidden_layers)
        ]

    @property
    def recurrence(self) -> DeltaNetSizes:
        """The sizes of the gated delta nets."""
        return DeltaNetSizes(
            num_key_heads=self.linear_num_key_heads,
            num_value_heads=self.linear_num_value_heads,
            key_dim=self.linear_key_head_dim,
            value_dim=self.linear_value_head_dim,
            kernel=self.linear_conv_kernel_dim,
        )


class SharedExpertFields(DeltaNetFields, qwen3.QwenMixtureFields):
    """Gated delta nets, and mixtures beside a shared MLP with a gate."""

    shared_expert_intermediate_size: Size = 512

    @property
    def shared_size(self) -> int:
        """Inner size of the shared expert."""
        return self.shared_expert_intermediate_size


class Qwen3NextFields(SharedExpertFields):
    """Qwen3-Next."""

    num_experts: NumExperts = Field(512, validation_alias=EXPERTS_NAMES)
    num_experts_per_tok: Count = 10


class Qwen3_5MoeFields(SharedExpertFields):
    """Qwen3.5 with mixtures in all layers, so there is no size for dense ones."""

    intermediate_size: Size | None = None  # type: ignore[assignment]
    num_experts: Annotated[int, Field(ge=1, le=2**14)] = Field(256, validation_alias=EXPERTS_NAMES)
    num_experts_per_tok: Count = 8

    @property
    def mlp_size(self) -> int:
        """The shared expert's inner size."""
        return self.shared_expert_intermediate_size

    @property
    def mixture(self) -> MixtureSizes:
        """The mixture of all layers, with weights that always add up to 1; the file's setting is ignored."""
        sizes = self.num_experts, self.num_experts_per_tok, self.moe_intermediate_size, self.shared_size
        return MixtureSizes(frozenset(range(self.num_hidden_layers)), *sizes, has_shared_gate=True)


LINEAR_NAMES = {
    **qwen3.NAMES,
    "mixer": ("linear_attn",),
    "mixer.conv": ("linear_attn.conv1d",),
    "mixer.norm": ("linear_attn.norm",),
    "mixer.out": ("linear_attn.out_proj",),
    "mixer_norm": ("input_layernorm",),
}
QWEN3_NEXT_NAMES = {
    **LINEAR_NAMES,
    "mixer.qkvz": ("linear_attn.in_proj_qkvz",),
    "mixer.ba": ("linear_attn.in_proj_ba",),
}
QWEN3_5_INPUTS = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")
QWEN3_5_NAMES = {**LINEAR_NAMES, "mixer.inputs": tuple(f"linear_attn.{name}" for name in QWEN3_5_INPUTS)}

NEXT = Family(
    Qwen3NextFields,
    llama.ONLY,
    norm=OffsetRMSNorm,
    attention=GatedAttention,
    mixer=DeltaNetByKeyHead,
    names=QWEN3_NEXT_NAMES,
)
DENSE = replace(
    NEXT,
    fields=DeltaNetFields,
    only={**llama.ONLY, "attn_output_gate": True},
    mixer=DeltaNet,
    names=QWEN3_5_NAMES,
)
MOE = replace(DENSE, fields=Qwen3_5MoeFields)

FAMILIES = {
    "qwen3_next": NEXT,
    "qwen3_5_text": DENSE,
    "qwen3_5": replace(DENSE, is_multimodal=True),
    "qwen3_5_moe_text": MOE,
    "qwen3_5_moe": replace(MOE, is_multimodal=True),
}
