"""Schemas of config.json of the families with mixtures of experts."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AliasChoices, Field, model_validator

from labengine.engine.mixture_sizes import MixtureSizes
from labengine.engine.model_files.config_fields import ConfigFields, Count, Eps, Positive, Size
from labengine.engine.model_files.config_states import DeltaNetFields, Lfm2Fields, Mamba2Fields
from labengine.engine.model_files.json_file import relation_error

GraniteKind = Literal["full_attention", "linear_attention", "attention", "mamba"]
"""The last two in the files of before transformers 5."""
NumExperts = Annotated[int, Field(ge=0, le=2**14)]
_NAMES = AliasChoices("num_experts", "num_local_experts")
"""transformers 5 writes the second where a file had the first."""


class MixtureFields(ConfigFields):
    """How many experts there are, and how many of them compute a token. Without experts, all layers are dense."""

    num_experts: NumExperts = Field(8, validation_alias=_NAMES)
    num_experts_per_tok: Count = 2

    @model_validator(mode="after")
    def _experts_suffice(self) -> Self:
        if 0 < self.num_experts < self.num_experts_per_tok:
            text = "num_experts_per_tok should be at most the number of experts, got {chosen} of {experts}"
            raise relation_error(text, chosen=self.num_experts_per_tok, experts=self.num_experts)
        return self


class MixtralFields(MixtureFields):
    """Mixtral: a mixture in each layer, and nothing beside it."""

    rms_norm_eps: Eps = 1e-5
    num_experts: Annotated[int, Field(ge=1, le=2**14)] = Field(8, validation_alias=_NAMES)

    @property
    def mixture(self) -> MixtureSizes:
        """All layers."""
        layers = frozenset(range(self.num_hidden_layers))
        return MixtureSizes(layers, self.num_experts, self.num_experts_per_tok, self.intermediate_size)


class GraniteHybridFields(Mamba2Fields, MixtureFields):
    """Granite 4: Mamba-2 layers, a few with attention and mostly no rope, four multipliers, and mostly experts."""

    rms_norm_eps: Eps = 1e-6
    layer_types: Annotated[list[GraniteKind], Field(min_length=1)] | None = None  # type: ignore[assignment]
    shared_intermediate_size: Size = 1024
    position_embedding_type: Literal["rope", "nope"] | None = None
    embedding_multiplier: Positive = 1.0
    residual_multiplier: Positive = 1.0
    attention_multiplier: Positive = 1.0
    logits_scaling: Positive = 1.0

    @property
    def mlp_size(self) -> int:
        """Inner size of the MLPs that compute every token."""
        return self.shared_intermediate_size

    @property
    def mixture(self) -> MixtureSizes | None:
        """All layers, or none."""
        if not self.num_experts:
            return None
        layers, sizes = frozenset(range(self.num_hidden_layers)), (self.num_experts, self.num_experts_per_tok)
        return MixtureSizes(layers, *sizes, self.intermediate_size, self.shared_intermediate_size)


class Lfm2MoeFields(Lfm2Fields, MixtureFields):
    """LFM2 with mixtures behind a few dense layers; a bias per expert takes part in the choice."""

    layer_types: Annotated[list[Literal["full_attention", "conv"]], Field(min_length=1)]  # type: ignore[assignment]
    num_experts: NumExperts = Field(32, validation_alias=_NAMES)
    num_experts_per_tok: Count = 4
    moe_intermediate_size: Size = 1792
    num_dense_layers: Annotated[int, Field(ge=0)] = 2
    norm_topk_prob: bool = True
    use_expert_bias: bool = True
    routed_scaling_factor: Positive = 1.0

    @property
    def mlp_size(self) -> int:
        """The size in the file, which is not adjusted here."""
        return self.intermediate_size

    @property
    def mixture(self) -> MixtureSizes | None:
        """All layers but the first few."""
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


class QwenMixtureFields(MixtureFields):
    """A mixture in every few layers, but in none of those listed as dense."""

    moe_intermediate_size: Size = 512
    norm_topk_prob: bool = True
    decoder_sparse_step: Count = 1
    mlp_only_layers: list[Annotated[int, Field(ge=0)]] | None = None

    @property
    def shared_size(self) -> int | None:
        """Inner size of the MLP that computes every token besides; None for no such MLP."""
        return None

    @property
    def mixture(self) -> MixtureSizes | None:
        """The layers that are neither listed nor left out by the step."""
        numbers = range(self.num_hidden_layers) if self.num_experts else ()
        dense, step = self.mlp_only_layers or (), self.decoder_sparse_step
        layers = frozenset(layer for layer in numbers if layer not in dense and not (layer + 1) % step)
        if not layers:
            return None
        return MixtureSizes(
            layers,
            self.num_experts,
            self.num_experts_per_tok,
            self.moe_intermediate_size,
            self.shared_size,
            has_shared_gate=self.shared_size is not None,
            is_normalized=self.norm_topk_prob,
        )


class Qwen3MoeFields(QwenMixtureFields):
    """Qwen3 with mixtures."""

    num_experts: NumExperts = Field(128, validation_alias=_NAMES)
    num_experts_per_tok: Count = 8
    moe_intermediate_size: Size = 768
    norm_topk_prob: bool = False


class SharedExpertFields(DeltaNetFields, QwenMixtureFields):
    """Gated delta nets, and mixtures beside an MLP of every token with a gate."""

    shared_expert_intermediate_size: Size = 512

    @property
    def shared_size(self) -> int:
        """Inner size of the shared expert."""
        return self.shared_expert_intermediate_size


class Qwen3NextFields(SharedExpertFields):
    """Qwen3-Next."""

    num_experts: NumExperts = Field(512, validation_alias=_NAMES)
    num_experts_per_tok: Count = 10


class Qwen3_5MoeFields(SharedExpertFields):
    """Qwen3.5 with mixtures: in all layers, so there is no size of dense ones."""

    intermediate_size: Size | None = None  # type: ignore[assignment]
    num_experts: Annotated[int, Field(ge=1, le=2**14)] = Field(256, validation_alias=_NAMES)
    num_experts_per_tok: Count = 8

    @property
    def mlp_size(self) -> int:
        """The shared expert's inner size."""
        return self.shared_expert_intermediate_size

    @property
    def mixture(self) -> MixtureSizes:
        """All layers, with weights that add up to 1, whatever else the file says."""
        sizes = self.num_experts, self.num_experts_per_tok, self.moe_intermediate_size, self.shared_size
        return MixtureSizes(frozenset(range(self.num_hidden_layers)), *sizes, has_shared_gate=True)
