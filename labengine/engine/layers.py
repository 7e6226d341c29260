"""The decoder layers of all models, and the record of what is particular to one family of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from labengine.engine.attention import StepAttention
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.mlp import MLP, Mixture, Router
from labengine.engine.model_config import ModelConfig
from labengine.engine.model_files.config_fields import ConfigFields
from labengine.engine.modules import Embedding, Linear, OffsetRMSNorm, RMSNorm, ScaledEmbedding
from labengine.engine.ops import Activation, HeadNorms, Ops
from labengine.engine.ops.torch_ops import gelu_tanh
from labengine.engine.rope import Rotation
from labengine.engine.states import LayerStates


@dataclass(frozen=True, slots=True)
class LayerStep:
    """An attention layer's inputs from the step: the rotation, the KV, the attention backend and the ops."""

    rotation: Rotation
    cache: LayerKV
    attention: StepAttention
    ops: Ops


@dataclass(frozen=True, slots=True)
class StateLayerStep:
    """The inputs from the step of a layer with a state: the requests' states, and the ops."""

    states: LayerStates
    ops: Ops


class Attention(nn.Module):
    """Grouped-query attention with rope; q, k and v in one matrix."""

    def __init__(self, config: ModelConfig, norm: type[RMSNorm]) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.scale = config.attention_scale
        self.num_heads, self.num_kv_heads = config.num_heads, config.num_kv_heads
        sizes = (heads * config.head_dim for heads in (config.num_heads, config.num_kv_heads, config.num_kv_heads))
        self.qkv = Linear(config.hidden_size, *sizes)
        self.out = Linear(config.num_heads * config.head_dim, config.hidden_size)

    def forward(self, hidden: Tensor, step: LayerStep) -> Tensor:
        """Map [num_tokens, hidden_size] to the same shape; write the tokens' KV to their slots on the way."""
        attended = step.attention.attend(self.queries(hidden, step), step.cache, self.scale)
        out: Tensor = self.out(attended.flatten(1))
        return out

    def queries(self, hidden: Tensor, step: LayerStep) -> Tensor:
        """Return the rotated queries [num_tokens, num_heads, head_dim]; write the tokens' KV to their slots."""
        return self.placed(self.qkv(hidden).unflatten(-1, (-1, self.head_dim)), step)

    def placed(self, heads: Tensor, step: LayerStep) -> Tensor:
        """Rotate queries and keys, and write keys and values to their slots; return the queries.

        heads: queries, keys and values, [num_tokens, heads, head_dim].
        """
        queries = step.ops.rotate_and_write(
            heads, self.num_kv_heads, step.rotation, self.head_norms, step.attention, step.cache
        )
        if queries is None:
            queries, keys = self.rotated(heads[:, : -self.num_kv_heads], step)
            step.attention.write(keys, heads[:, -self.num_kv_heads :], step.cache)
        return queries

    @property
    def head_norms(self) -> HeadNorms:
        """The norms of queries and keys, if there are any."""
        return None

    def rotated(self, heads: Tensor, step: LayerStep) -> tuple[Tensor, Tensor]:
        """Split [num_tokens, heads, head_dim] into queries and keys, rotated to their positions."""
        rotated = step.ops.rotate(heads, step.rotation)
        return rotated[:, : self.num_heads], rotated[:, self.num_heads :]


class QKNormAttention(Attention):
    """Attention whose queries and keys are normalized per head before the rotation (Qwen3, Gemma 3)."""

    def __init__(self, config: ModelConfig, norm: type[RMSNorm]) -> None:
        super().__init__(config, norm)
        self.q_norm = norm(config.head_dim, config.rms_norm_eps)
        self.k_norm = norm(config.head_dim, config.rms_norm_eps)

    @property
    def head_norms(self) -> HeadNorms:
        """The norms of queries and keys."""
        return self.q_norm, self.k_norm

    def rotated(self, heads: Tensor, step: LayerStep) -> tuple[Tensor, Tensor]:
        """Split into queries and keys, each normalized by its own weight and rotated to their positions."""
        queries, keys = heads[:, : self.num_heads], heads[:, self.num_heads :]
        ops, rotation = step.ops, step.rotation
        return ops.rotate(queries, rotation, self.q_norm), ops.rotate(keys, rotation, self.k_norm)


class GatedAttention(QKNormAttention):
    """QKNormAttention whose output is multiplied by the sigmoid of a gate per number (Qwen3-Next, Qwen3.5).

    The matrix has each query head's gate below the head itself.
    """

    def __init__(self, config: ModelConfig, norm: type[RMSNorm]) -> None:
        super().__init__(config, norm)
        sizes = (heads * config.head_dim for heads in (2 * config.num_heads, config.num_kv_heads, config.num_kv_heads))
        self.qkv = Linear(config.hidden_size, *sizes)

    def forward(self, hidden: Tensor, step: LayerStep) -> Tensor:
        """Map [num_tokens, hidden_size] to the same shape; write the tokens' KV to their slots on the way."""
        heads = self.qkv(hidden).unflatten(-1, (-1, self.head_dim))
        queries, gates = heads[:, : 2 * self.num_heads].unflatten(1, (self.num_heads, 2)).unbind(2)
        placed = self.placed(torch.cat((queries, heads[:, 2 * self.num_heads :]), dim=1), step)
        attended = step.attention.attend(placed, step.cache, self.scale)
        out: Tensor = self.out((attended * gates.sigmoid()).flatten(1))
        return out


class DecoderLayer(nn.Module):
    """Attention, then MLP, each on the normalized residual stream, to which its output is added.

    The addition happens in the next norm, which may be the next layer's: one pass over the stream serves both.
    """

    def __init__(self, config: ModelConfig, family: Family, mlp: MLP | Mixture) -> None:
        super().__init__()
        self.attention_norm = family.norm(config.hidden_size, config.rms_norm_eps)
        self.attention = family.attention(config, family.norm)
        self.mlp_norm = family.norm(config.hidden_size, config.rms_norm_eps)
        self.mlp = mlp
        self.multiplier = config.multipliers.residual

    def forward(self, stream: Tensor, part: Tensor | None, step: LayerStep) -> tuple[Tensor, Tensor]:
        """Return the stream, and the part still to be added to it; all are [num_tokens, hidden_size]."""
        normed, stream = step.ops.add_norm(stream, part, self.attention_norm)
        return self.after_attention(stream, self.attention(normed, step), step)

    def after_attention(self, stream: Tensor, attended: Tensor, step: LayerStep) -> tuple[Tensor, Tensor]:
        """Return what `forward` returns, from the stream and the attention's output."""
        normed, stream = step.ops.add_norm(stream, multiplied(attended, self.multiplier), self.mlp_norm)
        return stream, multiplied(self.mlp(normed, step.ops), self.multiplier)


class SandwichLayer(DecoderLayer):
    """A decoder layer that also normalizes the outputs of attention and MLP before adding them (Gemma 3)."""

    def __init__(self, config: ModelConfig, family: Family, mlp: MLP | Mixture) -> None:
        super().__init__(config, family, mlp)
        self.attended_norm = family.norm(config.hidden_size, config.rms_norm_eps)
        self.mlp_out_norm = family.norm(config.hidden_size, config.rms_norm_eps)

    def after_attention(self, stream: Tensor, attended: Tensor, step: LayerStep) -> tuple[Tensor, Tensor]:
        """Return what `forward` returns, from the stream and the attention's output."""
        attended = step.ops.norm(attended, self.attended_norm)
        normed, stream = step.ops.add_norm(stream, attended, self.mlp_norm)
        return stream, step.ops.norm(self.mlp(normed, step.ops), self.mlp_out_norm)


def multiplied(part: Tensor, multiplier: float) -> Tensor:
    """Return part * multiplier: the tensor itself for 1, which most models have."""
    return part if multiplier == 1.0 else part * multiplier


class StateLayer(nn.Module):
    """A decoder layer that mixes tokens through a state in place of attention."""

    def __init__(self, config: ModelConfig, family: Family, mlp: MLP | Mixture) -> None:
        super().__init__()
        assert family.mixer is not None, "only families with a mixer have such layers"
        self.mixer_norm = family.norm(config.hidden_size, config.rms_norm_eps)
        self.mixer = family.mixer(config.hidden_size, config.recurrence, config.rms_norm_eps)
        self.mlp_norm = family.norm(config.hidden_size, config.rms_norm_eps)
        self.mlp = mlp
        self.multiplier = config.multipliers.residual

    def forward(self, stream: Tensor, part: Tensor | None, step: StateLayerStep) -> tuple[Tensor, Tensor]:
        """Return the stream, and the part still to be added to it; all are [num_tokens, hidden_size]."""
        normed, stream = step.ops.add_norm(stream, part, self.mixer_norm)
        mixed = multiplied(self.mixer(normed, step.states), self.multiplier)
        normed, stream = step.ops.add_norm(stream, mixed, self.mlp_norm)
        return stream, multiplied(self.mlp(normed, step.ops), self.multiplier)


_IN_OPS = (
    *(Embedding, ScaledEmbedding, RMSNorm, OffsetRMSNorm),
    *(Attention, QKNormAttention, silu, gelu_tanh, DecoderLayer, SandwichLayer),
)
"""What native/program.py writes as ops: these classes, and none of their subclasses."""


# -- families ----------------------------------------------------------------------------------------------------------


Names = Mapping[str, tuple[str, ...]]
"""Names of tensors in a family's files: a layer's parts here, and what is stacked in each, top to bottom.

"norm" is the model's last norm, whose name is below `model` (or the family's root), as a layer's are below
`model.layers.N`. A name with "{}" is that of each expert by number. A key that ends with the parameter's own name gives
whole names; where files differ, their form with a whole name is used if they have it.
"""

LLAMA_NAMES = {
    "norm": ("norm",),
    "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.out": ("self_attn.o_proj",),
    "attention.q_norm": ("self_attn.q_norm",),
    "attention.k_norm": ("self_attn.k_norm",),
    "attention_norm": ("input_layernorm",),
    "mlp_norm": ("post_attention_layernorm",),
    "mlp.gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "mlp.down": ("mlp.down_proj",),
}


@dataclass(frozen=True, slots=True)
class Family:
    """All that is particular to the models of one model_type; the defaults are plain Llama.

    The fields of config.json, which also say what each layer is, come first, then the modules, then the files' tensors.
    """

    fields: type[ConfigFields]
    """Schema of config.json; its properties are the sizes and the layers."""
    only: Mapping[str, Any]
    """Settings that change the computation, with the one supported value."""
    fits_float16: bool = True
    """False where activations exceed 65,504."""
    embedding: type[Embedding] = Embedding
    norm: type[RMSNorm] = RMSNorm
    attention: type[Attention] = Attention
    activation: Activation = silu
    layer: type[DecoderLayer] = DecoderLayer
    mixer: Callable[[int, Any, float], nn.Module] | None = None
    """Of the layers with a state: by hidden size, the config's recurrence sizes, and the norms' eps."""
    router: type[Router] = Router
    """Of the layers with a mixture of experts."""
    names: Names = field(default_factory=lambda: LLAMA_NAMES)
    is_multimodal: bool = False
    """True if config.json holds the language model's settings in text_config, and the files other models' tensors."""

    @property
    def root(self) -> str:
        """What all names of the files but lm_head's begin with; other programs' tensors do not."""
        return "model.language_model" if self.is_multimodal else "model"

    @property
    def own_module(self) -> str | None:
        """The first of its modules that the native program has no ops for, by name; None if it has them all."""
        modules = self.embedding, self.norm, self.attention, self.activation, self.layer
        return next((getattr(one, "__name__", str(one)) for one in modules if one not in _IN_OPS), None)

    def mlp(self, config: ModelConfig, layer: int) -> MLP | Mixture:
        """Return the MLP of a layer, dense or a mixture as the config says."""
        sizes = config.mixture
        if sizes is None or layer not in sizes.layers:
            return MLP(config.hidden_size, config.intermediate_size, self.activation)
        return Mixture(config.hidden_size, sizes, self.router, self.activation)
