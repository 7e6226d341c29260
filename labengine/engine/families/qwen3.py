"""Qwen3, dense and with mixtures of experts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from labengine.engine.families import llama
from labengine.engine.layer_plan import FULL, SLIDING
from labengine.engine.layers import LLAMA_NAMES, Family, QKNormAttention
from labengine.engine.mixture_sizes import MixtureSizes
from labengine.engine.model_files.config_fields import (
    EXPERTS_NAMES,
    ConfigFields,
    Count,
    HeadDim,
    MixtureFields,
    NumExperts,
    Size,
)


class Qwen3Fields(ConfigFields):
    """Qwen3: a default head size, and windows from some layer on if they are used."""

    head_dim: HeadDim | None = 128
    max_window_layers: Annotated[int, Field(ge=0, le=1024)] = 28

    @property
    def layer_kinds(self) -> Sequence[str]:
        """layer_types; without it, windows after the first max_window_layers."""
        if self.layer_types or not self.use_sliding_window:
            return super().layer_kinds
        return [FULL if layer < self.max_window_layers else SLIDING for layer in range(self.num_hidden_layers)]


class QwenMixtureFields(MixtureFields):
    """A mixture in every few layers, except in those listed as dense."""

    moe_intermediate_size: Size = 512
    norm_topk_prob: bool = True
    decoder_sparse_step: Count = 1
    mlp_only_layers: list[Annotated[int, Field(ge=0)]] | None = None

    @property
    def shared_size(self) -> int | None:
        """Inner size of the shared MLP, which computes every token as well; None without one."""
        return None

    @property
    def mixture(self) -> MixtureSizes | None:
        """The mixture of the layers that are neither listed nor skipped by the step."""
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

    num_experts: NumExperts = Field(128, validation_alias=EXPERTS_NAMES)
    num_experts_per_tok: Count = 8
    moe_intermediate_size: Size = 768
    norm_topk_prob: bool = False

    @property
    def layer_kinds(self) -> Sequence[str]:
        """Full attention; layer_types is ignored."""
        return [FULL] * self.num_hidden_layers


NAMES = {
    **LLAMA_NAMES,
    "mlp.router": ("mlp.gate",),
    "mlp.experts.gate_up": ("mlp.experts.{}.gate_proj", "mlp.experts.{}.up_proj"),
    "mlp.experts.gate_up.weight": ("mlp.experts.gate_up_proj",),
    "mlp.experts.down": ("mlp.experts.{}.down_proj",),
    "mlp.experts.down.weight": ("mlp.experts.down_proj",),
    "mlp.shared.gate_up": ("mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj"),
    "mlp.shared.down": ("mlp.shared_expert.down_proj",),
    "mlp.shared_gate": ("mlp.shared_expert_gate",),
}
"""Qwen3.5's files have a layer's experts in one tensor; the others' files have one tensor per expert."""

FAMILIES = {
    "qwen3": Family(Qwen3Fields, llama.ONLY, attention=QKNormAttention, names=NAMES),
    "qwen3_moe": Family(
        Qwen3MoeFields, {**llama.ONLY, "use_sliding_window": False}, attention=QKNormAttention, names=NAMES
    ),
}
