"""Granite 4: Mamba-2 layers and attention, dense and with mixtures of experts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from labengine.engine.families import bamba
from labengine.engine.layer_plan import FULL, LINEAR
from labengine.engine.layers import Family
from labengine.engine.mixers import Mamba2
from labengine.engine.mixture_sizes import MixtureSizes
from labengine.engine.model_config import Multipliers
from labengine.engine.model_files.config_fields import Eps, MixtureFields, Positive, Size
from labengine.engine.rope import NO_ROPE, RopeSpec

OLDER_KINDS = {"mamba": LINEAR, "attention": FULL}
"""Names of kinds in files from before transformers 5."""
GraniteKind = Literal["full_attention", "linear_attention", "attention", "mamba"]


class GraniteHybridFields(bamba.Mamba2Fields, MixtureFields):
    """Granite 4: Mamba-2 layers, a few with attention, usually without rope; four multipliers; usually experts."""

    rms_norm_eps: Eps = 1e-6
    layer_types: Annotated[list[GraniteKind], Field(min_length=1)] | None = None  # type: ignore[assignment]
    shared_intermediate_size: Size = 1024
    position_embedding_type: Literal["rope", "nope"] | None = None
    embedding_multiplier: Positive = 1.0
    residual_multiplier: Positive = 1.0
    attention_multiplier: Positive = 1.0
    logits_scaling: Positive = 1.0

    @property
    def layer_kinds(self) -> Sequence[str]:
        """layer_types; without it, Mamba-2 everywhere."""
        if not self.layer_types:
            return [LINEAR] * self.num_hidden_layers
        return [OLDER_KINDS.get(kind, kind) for kind in self.layer_types]

    @property
    def rope(self) -> RopeSpec:
        """No rope, unless the file requires one."""
        return super().rope if self.position_embedding_type == "rope" else NO_ROPE

    @property
    def attention_scale(self) -> float:
        """Factor of the products of queries and keys."""
        return self.attention_multiplier

    @property
    def multipliers(self) -> Multipliers:
        """Factors of the residual stream and the logits."""
        return Multipliers(self.embedding_multiplier, self.residual_multiplier, self.logits_scaling)

    @property
    def mlp_size(self) -> int:
        """Inner size of the MLPs that compute every token."""
        return self.shared_intermediate_size

    @property
    def mixture(self) -> MixtureSizes | None:
        """The mixture of all layers; None without experts."""
        if not self.num_experts:
            return None
        layers, sizes = frozenset(range(self.num_hidden_layers)), (self.num_experts, self.num_experts_per_tok)
        return MixtureSizes(layers, *sizes, self.intermediate_size, self.shared_intermediate_size)


NAMES = {
    **bamba.NAMES,
    "norm": ("norm",),
    "mlp_norm": ("post_attention_layernorm",),
    "mlp.gate_up": ("shared_mlp.input_linear",),
    "mlp.down": ("shared_mlp.output_linear",),
    "mlp.router": ("block_sparse_moe.router.layer",),
    "mlp.experts.gate_up": ("block_sparse_moe.input_linear",),
    "mlp.experts.down": ("block_sparse_moe.output_linear",),
    "mlp.shared.gate_up": ("shared_mlp.input_linear",),
    "mlp.shared.down": ("shared_mlp.output_linear",),
}

FAMILIES = {"granitemoehybrid": Family(GraniteHybridFields, bamba.ONLY, mixer=Mamba2, names=NAMES)}
