"""In what the families of models differ: the parts of a layer, how they are joined, and their names in the files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor, nn
from torch.nn.functional import gelu, silu

from labengine.engine.layers import (
    MLP,
    Activation,
    Attention,
    Embedding,
    LayerStep,
    OffsetRMSNorm,
    QKNormAttention,
    RMSNorm,
    ScaledEmbedding,
)
from labengine.engine.model_config import ModelConfig

LLAMA_NAMES = {
    "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.out": ("self_attn.o_proj",),
    "attention.q_norm": ("self_attn.q_norm",),
    "attention.k_norm": ("self_attn.k_norm",),
    "attention_norm": ("input_layernorm",),
    "mlp_norm": ("post_attention_layernorm",),
    "mlp.gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "mlp.down": ("mlp.down_proj",),
}
"""Our name of a layer's part, and the files' names of the matrices stacked in it, top to bottom."""

GEMMA3_NAMES = {
    **LLAMA_NAMES,
    "attended_norm": ("post_attention_layernorm",),
    "mlp_norm": ("pre_feedforward_layernorm",),
    "mlp_out_norm": ("post_feedforward_layernorm",),
}


class DecoderLayer(nn.Module):
    """Attention, then MLP, each on a normalized input and added to the residual stream."""

    def __init__(self, config: ModelConfig, family: Family) -> None:
        super().__init__()
        self.attention_norm = family.norm(config.hidden_size, config.rms_norm_eps)
        self.attention = family.attention(config, family.norm)
        self.mlp_norm = family.norm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config, family.activation)

    def forward(self, hidden: Tensor, step: LayerStep) -> Tensor:
        """[num_tokens, hidden_size] to the same."""
        hidden = hidden + self.attention(self.attention_norm(hidden), step)
        out: Tensor = hidden + self.mlp(self.mlp_norm(hidden))
        return out


class SandwichLayer(DecoderLayer):
    """A decoder layer that normalizes what attention and MLP give, too, before it is added (Gemma 3)."""

    def __init__(self, config: ModelConfig, family: Family) -> None:
        super().__init__(config, family)
        self.attended_norm = family.norm(config.hidden_size, config.rms_norm_eps)
        self.mlp_out_norm = family.norm(config.hidden_size, config.rms_norm_eps)

    def forward(self, hidden: Tensor, step: LayerStep) -> Tensor:
        """[num_tokens, hidden_size] to the same."""
        hidden = hidden + self.attended_norm(self.attention(self.attention_norm(hidden), step))
        out: Tensor = hidden + self.mlp_out_norm(self.mlp(self.mlp_norm(hidden)))
        return out


@dataclass(frozen=True, slots=True)
class Family:
    """The models of one model_type; the defaults are plain Llama."""

    embedding: type[Embedding] = Embedding
    norm: type[RMSNorm] = RMSNorm
    attention: type[Attention] = Attention
    activation: Activation = silu
    layer: type[DecoderLayer] = DecoderLayer
    names: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: LLAMA_NAMES)


FAMILIES = {
    "llama": Family(),
    "mistral": Family(),
    "qwen3": Family(attention=QKNormAttention),
    "gemma3_text": Family(
        embedding=ScaledEmbedding,
        norm=OffsetRMSNorm,
        attention=QKNormAttention,
        activation=partial(gelu, approximate="tanh"),
        layer=SandwichLayer,
        names=GEMMA3_NAMES,
    ),
}
