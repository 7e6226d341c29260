"""A model's sizes and layers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from labengine.config import GroupSpec
from labengine.engine.layer_plan import AttentionSpec, LayerSpec, StateSpec, kv_groups
from labengine.engine.mixture_sizes import MixtureSizes
from labengine.engine.recurrence_sizes import LayerState, Mamba2Sizes, RecurrenceSizes
from labengine.engine.rope import RopeSpec


@dataclass(frozen=True, slots=True)
class Multipliers:
    """What a Granite model multiplies by; 1 changes nothing."""

    embedding: float = 1.0
    residual: float = 1.0
    """Of what each layer's two halves add to the stream."""
    logits: float = 1.0
    """A divisor."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The sizes of a decoder-only model, in the units of config.json."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: tuple[LayerSpec, ...]
    recurrence: RecurrenceSizes | None
    """The sizes of the layers with a state; None for a model without."""
    mixture: MixtureSizes | None
    """The mixtures of experts; None for a model without."""
    num_heads: int
    num_kv_heads: int
    head_dim: int
    attention_scale: float
    """Factor of the products of queries and keys."""
    rms_norm_eps: float
    max_model_len: int
    tie_word_embeddings: bool
    eos_token_ids: frozenset[int]
    multipliers: Multipliers
    fits_float16: bool
    own_module: str | None
    """See Family.own_module."""

    @property
    def num_layers(self) -> int:
        """Decoder layers, each with KV or a state of its own."""
        return len(self.layers)

    @property
    def ropes(self) -> dict[RopeSpec, None]:
        """The model's ropes, in the order of the layers that need them."""
        return {layer.rope: None for layer in self.layers if isinstance(layer, AttentionSpec)}

    def rope_of(self, layer: int) -> RopeSpec:
        """Return the rope of a layer with attention."""
        spec = self.layers[layer]
        assert isinstance(spec, AttentionSpec), f"layer {layer} keeps a state, and rotates nothing"
        return spec.rope

    @property
    def states(self) -> tuple[LayerState, ...]:
        """The state of each layer; empty for a layer with attention."""
        return tuple(layer.state if isinstance(layer, StateSpec) else () for layer in self.layers)

    @property
    def has_states(self) -> bool:
        """True if a layer keeps a state instead of KV."""
        return any(self.states)

    @property
    def needs_modules(self) -> str | None:
        """What no native program and no CUDA graph of ours computes, for half a sentence; None for plain models."""
        if self.has_states:
            return "layers with a state"
        if self.mixture is not None:
            return "mixtures of experts"
        if self.multipliers != Multipliers():
            return "Granite's multipliers"
        is_plain = all(rope.share == rope.magnitude == 1.0 for rope in self.ropes)
        return self.own_module if is_plain else "LongRoPE or partial ropes"

    def for_length(self, max_model_len: int) -> ModelConfig:
        """Return the config for requests of at most max_model_len positions: of LongRoPE it selects the factors."""
        layers = (
            replace(layer, rope=layer.rope.for_length(max_model_len)) if isinstance(layer, AttentionSpec) else layer
            for layer in self.layers
        )
        return replace(self, layers=tuple(layers))

    def kv_groups(self, block_size: int) -> tuple[tuple[GroupSpec, ...], tuple[int, ...]]:
        """Return the model's KV-cache groups, in blocks of block_size tokens, and the group of each layer."""
        # In vLLM 0.32 MambaMixer2 alone of these layers leaves a state inside a chunk, at any token.
        alignment = 1 if isinstance(self.recurrence, Mamba2Sizes) else None
        return kv_groups([layer.kind for layer in self.layers], block_size, alignment)
