"""In what the families of models differ: the parts of a layer, how they are joined, and their names in the files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor, nn
from torch.nn.functional import silu

from labengine.engine.layers import MLP, Attention, LayerStep, QKNormAttention
from labengine.engine.model_config import ModelConfig
from labengine.engine.modules import Embedding, OffsetRMSNorm, RMSNorm, ScaledEmbedding
from labengine.engine.ops import Activation
from labengine.engine.ops.torch_ops import gelu_tanh

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
    """Attention, then MLP, each on the normalized residual stream, to which what they give is added.

    The addition is left to the norm that comes next, be it the next layer's: one pass over the stream serves both.
    """

    def __init__(self, config: ModelConfig, family: Family) -> None:
        super().__init__()
        self.attention_norm = family.norm(config.hidden_size, config.rms_norm_eps)
        self.attention = family.attention(config, family.norm)
        self.mlp_norm = family.norm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config, family.activation)

    def forward(self, stream: Tensor, part: Tensor | None, step: LayerStep) -> tuple[Tensor, Tensor]:
        """The stream, and a part still to be added to it, to the same; [num_tokens, hidden_size] each."""
        normed, stream = step.ops.add_norm(stream, part, self.attention_norm)
        attended = self.attention(normed, step)
        normed, stream = step.ops.add_norm(stream, attended, self.mlp_norm)
        return stream, self.mlp(normed, step)


class SandwichLayer(DecoderLayer):
    """A decoder layer that normalizes what attention and MLP give, too, before it is added (Gemma 3)."""

    def __init__(self, config: ModelConfig, family: Family) -> None:
        super().__init__(config, family)
        self.attended_norm = family.norm(config.hidden_size, config.rms_norm_eps)
        self.mlp_out_norm = family.norm(config.hidden_size, config.rms_norm_eps)

    def forward(self, stream: Tensor, part: Tensor | None, step: LayerStep) -> tuple[Tensor, Tensor]:
        """See DecoderLayer."""
        normed, stream = step.ops.add_norm(stream, part, self.attention_norm)
        attended = step.ops.norm(self.attention(normed, step), self.attended_norm)
        normed, stream = step.ops.add_norm(stream, attended, self.mlp_norm)
        return stream, step.ops.norm(self.mlp(normed, step), self.mlp_out_norm)


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
        activation=gelu_tanh,
        layer=SandwichLayer,
        names=GEMMA3_NAMES,
    ),
}
