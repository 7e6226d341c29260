"""LFM2: short convolutions beside full attention, dense and with mixtures of experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from labengine.engine.layer_plan import CONV, FULL
from labengine.engine.layers import Family, QKNormAttention
from labengine.engine.mixers import ShortConv
from labengine.engine.mixture_sizes import MixtureSizes
from labengine.engine.mlp import SigmoidRouter
from labengine.engine.model_files.config_fields import (
    EXPERTS_NAMES,
    ConfigFields,
    Count,
    Eps,
    Kernel,
    MixtureFields,
    NumExperts,
    Positive,
    Size,
)
from labengine.engine.recurrence_sizes import ShortConvSizes


class Lfm2Fields(ConfigFields):
    """LFM2: short convolutions beside full attention. Some sizes have other names in older files; these go first."""

    default_theta: ClassVar = 1e6
    rms_norm_eps: Eps = Field(1e-5, alias="norm_eps")
    tie_word_embeddings: bool = True
    tie_embedding: bool | None = None
    block_ff_dim: Size | None = None
    block_auto_adjust_ff_dim: bool = True
    block_ffn_dim_multiplier: Positive = 1.0
    block_multiple_of: Size = 256
    conv_L_cache: Kernel = 3
    full_attn_idxs: list[Annotated[int, Field(ge=0)]] | None = None
    layer_types: Annotated[list[Literal["full_attention", "conv"]], Field(min_length=1)] | None = None  # type: ignore[assignment]

    @property
    def layer_kinds(self) -> Sequence[str]:
        """layer_types; without it, attention in the layers of full_attn_idxs."""
        if self.layer_types or self.full_attn_idxs is None:
            return super().layer_kinds
        return [FULL if layer in self.full_attn_idxs else CONV for layer in range(self.num_hidden_layers)]

    @property
    def mlp_size(self) -> int:
        """The size in the file; if it is to be adjusted, two thirds of it, rounded up to a multiple."""
        size = self.block_ff_dim or self.intermediate_size
        if not self.block_auto_adjust_ff_dim:
            return size
        size = int(self.block_ffn_dim_multiplier * int(2 * size / 3))
        return -(-size // self.block_multiple_of) * self.block_multiple_of

    @property
    def is_tied(self) -> bool:
        """True if the output matrix is the embedding."""
        return self.tie_word_embeddings if self.tie_embedding is None else self.tie_embedding

    @property
    def recurrence(self) -> ShortConvSizes:
        """The sizes of the short convolutions."""
        return ShortConvSizes(self.hidden_size, self.conv_L_cache)


class Lfm2MoeFields(Lfm2Fields, MixtureFields):
    """LFM2 with mixtures after a few dense layers; a bias per expert takes part in the choice."""

    layer_types: Annotated[list[Literal["full_attention", "conv"]], Field(min_length=1)]  # type: ignore[assignment]
    num_experts: NumExperts = Field(32, validation_alias=EXPERTS_NAMES)
    num_experts_per_tok: Count = 4
    moe_intermediate_size: Size = 1792
    num_dense_layers: Annotated[int, Field(ge=0)] = 2
    norm_topk_prob: bool = True
    use_expert_bias: bool = True
    routed_scaling_factor: Positive = 1.0

    @property
    def mlp_size(self) -> int:
        """The size in the file, without adjustment."""
        return self.intermediate_size

    @property
    def mixture(self) -> MixtureSizes | None:
        """The mixture of all layers but the first few."""
        layers = frozenset(range(self.num_dense_layers, self.num_hidden_layers)) if self.num_experts else frozenset()
        if not layers:
            return None
        return MixtureSizes(
            layers,
            self.num_experts,
            self.num_experts_per_tok,
            self.moe_intermediate_size,
            is_normalized=self.norm_topk_prob,
            scale=self.routed_scaling_factor,
            has_bias=self.use_expert_bias,
        )


NAMES = {
    "norm": ("embedding_norm",),
    "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.out": ("self_attn.out_proj",),
    "attention.q_norm": ("self_attn.q_layernorm",),
    "attention.k_norm": ("self_attn.k_layernorm",),
    "attention_norm": ("operator_norm",),
    "mixer.inputs": ("conv.in_proj",),
    "mixer.conv": ("conv.conv",),
    "mixer.out": ("conv.out_proj",),
    "mixer_norm": ("operator_norm",),
    "mlp_norm": ("ffn_norm",),
    "mlp.gate_up": ("feed_forward.w1", "feed_forward.w3"),
    "mlp.down": ("feed_forward.w2",),
    "mlp.router": ("feed_forward.gate",),
    "mlp.router.expert_bias": ("feed_forward.expert_bias",),
    "mlp.experts.gate_up": ("feed_forward.experts.{}.w1", "feed_forward.experts.{}.w3"),
    "mlp.experts.down": ("feed_forward.experts.{}.w2",),
}

DENSE = Family(
    Lfm2Fields, {"conv_bias": False}, attention=QKNormAttention, mixer=ShortConv, router=SigmoidRouter, names=NAMES
)
FAMILIES = {"lfm2": DENSE, "lfm2_moe": replace(DENSE, fields=Lfm2MoeFields)}
