"""Gemma 3, text only."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ConfigDict

from labengine.engine.layer_plan import FULL, SLIDING
from labengine.engine.layers import LLAMA_NAMES, Family, QKNormAttention, SandwichLayer
from labengine.engine.model_files.config_fields import ConfigFields, Count, HeadDim, Positive, RopeFields, Theta
from labengine.engine.model_files.json_file import FileModel
from labengine.engine.modules import OffsetRMSNorm, ScaledEmbedding
from labengine.engine.ops.torch_ops import gelu_tanh
from labengine.engine.rope import RopeSpec


class RopeByKind(FileModel):
    """Gemma 3's two ropes."""

    model_config = ConfigDict(extra="forbid")

    full_attention: RopeFields | None = None
    sliding_attention: RopeFields | None = None


class Gemma3Fields(ConfigFields):
    """Gemma 3: two ropes, windows in a pattern, and its own attention scale."""

    head_dim: HeadDim | None = 256
    tie_word_embeddings: bool = True
    query_pre_attn_scalar: Positive = 256
    sliding_window_pattern: Count | None = None
    rope_local_base_freq: Theta | None = None
    rope_parameters: RopeByKind | None = None  # type: ignore[assignment]

    @property
    def attention_scale(self) -> float:
        """Factor of the products of queries and keys."""
        return float(self.query_pre_attn_scalar**-0.5)

    @property
    def layer_kinds(self) -> Sequence[str]:
        """layer_types, or full attention in every few layers."""
        pattern = self.sliding_window_pattern or 6
        by_rule = [SLIDING if (layer + 1) % pattern else FULL for layer in range(self.num_hidden_layers)]
        return self.layer_types or by_rule

    @property
    def rope(self) -> RopeSpec:
        """The rope of full layers; older files have it in rope_theta and rope_scaling."""
        settings = self.rope_parameters.full_attention if self.rope_parameters else self.rope_scaling
        return (settings or RopeFields()).spec(self.rope_theta or 1e6)

    @property
    def local_rope(self) -> RopeSpec:
        """The rope of sliding layers; older files have its base in rope_local_base_freq."""
        settings = self.rope_parameters.sliding_attention if self.rope_parameters else None
        return (settings or RopeFields()).spec(self.rope_local_base_freq or 1e4)


FAMILIES = {
    "gemma3_text": Family(
        Gemma3Fields,
        only={
            "hidden_activation": "gelu_pytorch_tanh",
            "attention_bias": False,
            "attn_logit_softcapping": None,
            "final_logit_softcapping": None,
            "use_bidirectional_attention": False,
        },
        fits_float16=False,  # the residual stream exceeds its range, from the scaled embedding on
        embedding=ScaledEmbedding,
        norm=OffsetRMSNorm,
        attention=QKNormAttention,
        activation=gelu_tanh,
        layer=SandwichLayer,
        names={
            **LLAMA_NAMES,
            "attended_norm": ("post_attention_layernorm",),
            "mlp_norm": ("pre_feedforward_layernorm",),
            "mlp_out_norm": ("post_feedforward_layernorm",),
        },
    )
}
