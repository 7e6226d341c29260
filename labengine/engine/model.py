"""The model: token ids of a step in, logits of the sampling rows out, KV through block tables in between.

Its decoder layers come first, then the families of models (which parts each is made of), then the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from labengine.engine.attention import StepAttention
from labengine.engine.kv_tensors import KVTensors, LayerKV
from labengine.engine.layer_plan import StateSpec
from labengine.engine.mixers import DeltaNet, DeltaNetByKeyHead, Mamba2, ShortConv
from labengine.engine.mlp import MLP, Mixture, Router, SigmoidRouter
from labengine.engine.model_config import ModelConfig
from labengine.engine.modules import Embedding, Linear, OffsetRMSNorm, RMSNorm, ScaledEmbedding, TiedLinear
from labengine.engine.ops import Activation, HeadNorms, Ops, OpsSetting
from labengine.engine.ops.torch_ops import TorchOps, gelu_tanh
from labengine.engine.rope import Rotation, Rotations
from labengine.engine.states import LayerStates, StepStates
from labengine.engine.step_tensors import StepTensors
from labengine.engine.tensor_names import (
    BAMBA_NAMES,
    GEMMA3_NAMES,
    GRANITE_HYBRID_NAMES,
    LFM2_NAMES,
    LLAMA_NAMES,
    MIXTRAL_NAMES,
    QWEN3_5_NAMES,
    QWEN3_NEXT_NAMES,
    QWEN_NAMES,
    Names,
)


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


@dataclass(frozen=True, slots=True)
class Family:
    """The models of one model_type; the defaults are plain Llama."""

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
    root: str = "model"
    """What all names of the files but lm_head's begin with; other programs' tensors do not."""

    def mlp(self, config: ModelConfig, layer: int) -> MLP | Mixture:
        """Return the MLP of a layer, dense or a mixture as the config says."""
        sizes = config.mixture
        if sizes is None or layer not in sizes.layers:
            return MLP(config.hidden_size, config.intermediate_size, self.activation)
        return Mixture(config.hidden_size, sizes, self.router, self.activation)


LFM2 = Family(attention=QKNormAttention, mixer=ShortConv, router=SigmoidRouter, names=LFM2_NAMES)
QWEN = Family(attention=QKNormAttention, names=QWEN_NAMES)
QWEN3_5 = Family(norm=OffsetRMSNorm, attention=GatedAttention, mixer=DeltaNet, names=QWEN3_5_NAMES)
MULTIMODAL_QWEN3_5 = replace(QWEN3_5, root="model.language_model")

FAMILIES = {
    "llama": Family(),
    "mistral": Family(),
    "mixtral": Family(names=MIXTRAL_NAMES),
    "qwen3": QWEN,
    "qwen3_moe": QWEN,
    "gemma3_text": Family(
        embedding=ScaledEmbedding,
        norm=OffsetRMSNorm,
        attention=QKNormAttention,
        activation=gelu_tanh,
        layer=SandwichLayer,
        names=GEMMA3_NAMES,
    ),
    "lfm2": LFM2,
    "lfm2_moe": LFM2,
    "bamba": Family(mixer=Mamba2, names=BAMBA_NAMES),
    "granitemoehybrid": Family(mixer=Mamba2, names=GRANITE_HYBRID_NAMES),
    "qwen3_next": Family(norm=OffsetRMSNorm, attention=GatedAttention, mixer=DeltaNetByKeyHead, names=QWEN3_NEXT_NAMES),
    "qwen3_5_text": QWEN3_5,
    "qwen3_5": MULTIMODAL_QWEN3_5,
    "qwen3_5_moe_text": QWEN3_5,
    "qwen3_5_moe": MULTIMODAL_QWEN3_5,
}


# -- the model ---------------------------------------------------------------------------------------------------------


TORCH_OPS = TorchOps()


class PagedModel(nn.Module):
    """A decoder-only model whose KV and states live in blocks."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        family = FAMILIES[config.model_type]
        self.config = config
        self.embedding = family.embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            (StateLayer if isinstance(spec, StateSpec) else family.layer)(config, family, family.mlp(config, index))
            for index, spec in enumerate(config.layers)
        )
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
            rotates_whole_heads=all(rope.share == 1.0 for rope in config.ropes),
        )

    def forward(
        self,
        step: StepTensors,
        kv: KVTensors,
        attention: Sequence[StepAttention | StepStates],
        rotations: Rotations,
        ops: Ops = TORCH_OPS,
        out: Tensor | None = None,
    ) -> Tensor:
        """Return logits float32 [num_sampling, vocab_size], in batch order; write KV and states to the step's slots and
        blocks, and nowhere else.

        attention: one per KV-cache group; of a state group the step's states. rotations: one per rope of the
        model, at the step's positions. ops: computes everything but attention and recurrences; it must have adopted the
        model. out: memory for the logits, else they are allocated.
        """
        stream = multiplied(self.embedding(step.token_ids), self.config.multipliers.embedding)
        part: Tensor | None = None
        for index, (layer, spec) in enumerate(zip(self.layers, self.config.layers, strict=True)):
            of_group = attention[kv.layer_groups[index]]
            layer_step: LayerStep | StateLayerStep
            if isinstance(spec, StateSpec):
                assert isinstance(of_group, StepStates), "a state group's layers have states"
                layer_step = StateLayerStep(LayerStates(of_group, kv.states(index)), ops)
            else:
                assert isinstance(of_group, StepAttention), "an attention group's layers attend"
                layer_step = LayerStep(rotations[spec.rope], kv.layer(index), of_group, ops)
            stream, part = layer(stream, part, layer_step)
        rows = step.sample_rows
        assert part is not None, "a model has layers"
        normed, _ = ops.add_norm(stream[rows], part[rows], self.norm)
        return self.logits(normed, out)

    def logits(self, normed: Tensor, out: Tensor | None = None) -> Tensor:
        """Return the logits of normed rows, float32, in `out` if that is given."""
        logits = self.lm_head(normed)
        if self.config.multipliers.logits != 1.0:
            logits = logits / self.config.multipliers.logits
        return logits.float() if out is None else out.copy_(logits)
