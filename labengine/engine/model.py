"""The model: token ids of a step in, logits of the sampling rows out, KV through block tables in between.

Its decoder layers come first, then the families of models (which parts, and their names in the files), then the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor, nn
from torch.nn.functional import silu

from labengine.engine.attention import StepAttention
from labengine.engine.kv_tensors import KVTensors, LayerKV
from labengine.engine.model_config import ModelConfig
from labengine.engine.modules import Embedding, Linear, OffsetRMSNorm, RMSNorm, ScaledEmbedding, TiedLinear
from labengine.engine.ops import Activation, HeadNorms, Ops, OpsSetting
from labengine.engine.ops.torch_ops import TorchOps, gelu_tanh
from labengine.engine.rope import Rotation, Rotations
from labengine.engine.step_tensors import StepTensors


@dataclass(frozen=True, slots=True)
class LayerStep:
    """A layer's inputs from the step: the rotation, the KV, the attention backend and the ops."""

    rotation: Rotation
    cache: LayerKV
    attention: StepAttention
    ops: Ops


class MLP(nn.Module):
    """down(activation(gate(x)) * up(x)), with gate and up in one matrix."""

    def __init__(self, config: ModelConfig, activation: Activation) -> None:
        super().__init__()
        self.activation = activation
        self.gate_up = Linear(config.hidden_size, config.intermediate_size, config.intermediate_size, is_gated=True)
        self.down = Linear(config.intermediate_size, config.hidden_size)

    def forward(self, hidden: Tensor, step: LayerStep) -> Tensor:
        """Map [num_tokens, hidden_size] to the same shape."""
        out: Tensor = self.down(step.ops.gated(self.gate_up(hidden), self.activation))
        return out


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
        heads = self.qkv(hidden).unflatten(-1, (-1, self.head_dim))
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
"""Names of a layer's parts here, and the files' names of the matrices stacked in each, top to bottom."""

GEMMA3_NAMES = {
    **LLAMA_NAMES,
    "attended_norm": ("post_attention_layernorm",),
    "mlp_norm": ("pre_feedforward_layernorm",),
    "mlp_out_norm": ("post_feedforward_layernorm",),
}


class DecoderLayer(nn.Module):
    """Attention, then MLP, each on the normalized residual stream, to which its output is added.

    The addition happens in the next norm, which may be the next layer's: one pass over the stream serves both.
    """

    def __init__(self, config: ModelConfig, family: Family) -> None:
        super().__init__()
        self.attention_norm = family.norm(config.hidden_size, config.rms_norm_eps)
        self.attention = family.attention(config, family.norm)
        self.mlp_norm = family.norm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config, family.activation)

    def forward(self, stream: Tensor, part: Tensor | None, step: LayerStep) -> tuple[Tensor, Tensor]:
        """Return the stream, and the part still to be added to it; all are [num_tokens, hidden_size]."""
        normed, stream = step.ops.add_norm(stream, part, self.attention_norm)
        return self.after_attention(stream, self.attention(normed, step), step)

    def after_attention(self, stream: Tensor, attended: Tensor, step: LayerStep) -> tuple[Tensor, Tensor]:
        """Return what `forward` returns, from the stream and the attention's output."""
        normed, stream = step.ops.add_norm(stream, attended, self.mlp_norm)
        return stream, self.mlp(normed, step)


class SandwichLayer(DecoderLayer):
    """A decoder layer that also normalizes the outputs of attention and MLP before adding them (Gemma 3)."""

    def __init__(self, config: ModelConfig, family: Family) -> None:
        super().__init__(config, family)
        self.attended_norm = family.norm(config.hidden_size, config.rms_norm_eps)
        self.mlp_out_norm = family.norm(config.hidden_size, config.rms_norm_eps)

    def after_attention(self, stream: Tensor, attended: Tensor, step: LayerStep) -> tuple[Tensor, Tensor]:
        """Return what `forward` returns, from the stream and the attention's output."""
        attended = step.ops.norm(attended, self.attended_norm)
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


# -- the model ---------------------------------------------------------------------------------------------------------


TORCH_OPS = TorchOps()


class PagedModel(nn.Module):
    """A decoder-only transformer whose KV lives in blocks."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        family = FAMILIES[config.model_type]
        self.config = config
        self.embedding = family.embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(family.layer(config, family) for _ in config.layers)
        self.norm = family.norm(config.hidden_size, config.rms_norm_eps)
        self.lm_head: Linear
        if config.tie_word_embeddings:
            self.lm_head = TiedLinear(self.embedding)
        else:
            self.lm_head = Linear(config.hidden_size, config.vocab_size)

    def first_layers(self, num_layers: int) -> PagedModel:
        """Return a model of the same modules with the first layers alone, under the same norm and head."""
        other = PagedModel.__new__(PagedModel)
        nn.Module.__init__(other)
        other.config = replace(self.config, layers=self.config.layers[:num_layers])
        other.embedding, other.norm, other.lm_head = self.embedding, self.norm, self.lm_head
        other.layers = nn.ModuleList(list(self.layers)[:num_layers])
        return other

    @property
    def ops_setting(self) -> OpsSetting:
        """The requirements of the layers, where the weights are."""
        config, family, weight = self.config, FAMILIES[self.config.model_type], self.norm.weight
        return OpsSetting(
            device=weight.device,
            dtype=weight.dtype,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            norm=family.norm,
            has_head_norms=issubclass(family.attention, QKNormAttention),
            activation=family.activation,
        )

    def forward(
        self,
        step: StepTensors,
        kv: KVTensors,
        attention: Sequence[StepAttention],
        rotations: Rotations,
        ops: Ops = TORCH_OPS,
        out: Tensor | None = None,
    ) -> Tensor:
        """Return logits float32 [num_sampling, vocab_size], in batch order; write KV to the step's slots and nowhere
        else.

        attention: one per KV-cache group. rotations: one per rope of the model, at the step's positions. ops: computes
        everything but attention; it must have adopted the model. out: memory for the logits, else they are allocated.
        """
        stream: Tensor = self.embedding(step.token_ids)
        part: Tensor | None = None
        for index, (layer, spec) in enumerate(zip(self.layers, self.config.layers, strict=True)):
            group_attention = attention[kv.layer_groups[index]]
            layer_step = LayerStep(rotations[spec.rope], kv.layer(index), group_attention, ops)
            stream, part = layer(stream, part, layer_step)
        rows = step.sample_rows
        assert part is not None, "a model has layers"
        normed, _ = ops.add_norm(stream[rows], part[rows], self.norm)
        return self.logits(normed, out)

    def logits(self, normed: Tensor, out: Tensor | None = None) -> Tensor:
        """Return the logits of normed rows, float32, in `out` if that is given."""
        logits: Tensor = self.lm_head(normed)
        return logits.float() if out is None else out.copy_(logits)
