"""A model's sizes and layers from config.json. Settings that the engine cannot compute are refused, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labengine.config import ConfigError, GroupSpec
from labengine.engine.layer_plan import AttentionSpec, LayerSpec, StateSpec, kv_groups, layer_plan
from labengine.engine.mixture_sizes import MixtureSizes
from labengine.engine.model_files.config_fields import ConfigFields, GenerationFields, TokenFields
from labengine.engine.model_files.config_file import SCHEMAS, Gemma3Fields
from labengine.engine.model_files.config_mixtures import GraniteHybridFields
from labengine.engine.model_files.json_file import errors_about, read_object, shown, validated
from labengine.engine.recurrence_sizes import LayerState, Mamba2Sizes, RecurrenceSizes
from labengine.engine.rope import RopeSpec

_LLAMA_LIKE = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False}
_QWEN3_5 = {**_LLAMA_LIKE, "attn_output_gate": True}
_GEMMA3 = {
    "hidden_activation": "gelu_pytorch_tanh",
    "attention_bias": False,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "use_bidirectional_attention": False,
}
_ONLY: dict[str, dict[str, Any]] = {
    "llama": _LLAMA_LIKE,
    "mistral": _LLAMA_LIKE,
    "mixtral": _LLAMA_LIKE,
    "qwen3": _LLAMA_LIKE,
    "qwen3_moe": {**_LLAMA_LIKE, "use_sliding_window": False},
    "gemma3_text": _GEMMA3,
    "lfm2": {"conv_bias": False},
    "lfm2_moe": {"conv_bias": False},
    "bamba": {**_LLAMA_LIKE, "mamba_proj_bias": False},
    "granitemoehybrid": {**_LLAMA_LIKE, "mamba_proj_bias": False},
    "qwen3_next": _LLAMA_LIKE,
    "qwen3_5_text": _QWEN3_5,
    "qwen3_5": _QWEN3_5,
    "qwen3_5_moe_text": _QWEN3_5,
    "qwen3_5_moe": _QWEN3_5,
}
"""Per model type: settings that change the computation, with the one supported value."""

SUPPORTED_MODEL_TYPES = tuple(_ONLY)


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
    multipliers: Multipliers = Multipliers()

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
        return "Granite's multipliers" if self.multipliers != Multipliers() else None

    @property
    def fits_float16(self) -> bool:
        """False where activations exceed 65,504: Gemma's residual stream does, from its scaled embedding on."""
        return not self.model_type.startswith("gemma")

    def kv_groups(self, block_size: int) -> tuple[tuple[GroupSpec, ...], tuple[int, ...]]:
        """Return the model's KV-cache groups, in blocks of block_size tokens, and the group of each layer."""
        # In vLLM 0.32 MambaMixer2 alone of these layers leaves a state inside a chunk, at any token.
        alignment = 1 if isinstance(self.recurrence, Mamba2Sizes) else None
        return kv_groups([layer.kind for layer in self.layers], block_size, alignment)

    @classmethod
    def load(cls, model_dir: Path) -> ModelConfig:
        """Read config.json and generation_config.json. Raises ConfigError for a model this engine cannot compute."""
        path = model_dir / "config.json"
        raw = _of_text(read_object(path))
        with errors_about(path):
            _refuse_unsupported(raw)
        fields = validated(SCHEMAS[raw["model_type"]], raw, path)
        with errors_about(path):
            state = () if fields.recurrence is None else fields.recurrence.state
            layers = layer_plan(fields.model_dump(exclude_none=True), state)
            by_config = _end_tokens(fields, fields.vocab_size)
        return cls._of(fields, layers, _end_tokens_of_generation(model_dir, fields.vocab_size, by_config))

    @classmethod
    def _of(cls, fields: ConfigFields, layers: tuple[LayerSpec, ...], eos_token_ids: frozenset[int]) -> ModelConfig:
        head_dim = fields.head_dim or fields.hidden_size // fields.num_attention_heads
        scale, multipliers = head_dim**-0.5, Multipliers()
        if isinstance(fields, Gemma3Fields):
            scale = fields.query_pre_attn_scalar**-0.5
        elif isinstance(fields, GraniteHybridFields):
            scale = fields.attention_multiplier
            multipliers = Multipliers(fields.embedding_multiplier, fields.residual_multiplier, fields.logits_scaling)
        return cls(
            model_type=fields.model_type,
            vocab_size=fields.vocab_size,
            hidden_size=fields.hidden_size,
            intermediate_size=fields.mlp_size,
            layers=layers,
            recurrence=fields.recurrence,
            mixture=fields.mixture,
            num_heads=fields.num_attention_heads,
            num_kv_heads=fields.num_key_value_heads or fields.num_attention_heads,
            head_dim=head_dim,
            attention_scale=scale,
            rms_norm_eps=fields.rms_norm_eps,
            max_model_len=fields.max_position_embeddings,
            tie_word_embeddings=fields.is_tied,
            eos_token_ids=eos_token_ids,
            multipliers=multipliers,
        )


def _end_tokens_of_generation(model_dir: Path, vocab_size: int, by_config: frozenset[int]) -> frozenset[int]:
    """Return generation_config.json's end tokens if it names any (or none on purpose), else those of config.json."""
    path = model_dir / "generation_config.json"
    if not path.exists():
        return by_config
    fields = validated(GenerationFields, read_object(path), path)
    with errors_about(path):
        by_generation = _end_tokens(fields, vocab_size)
    return by_generation if "eos_token_id" in fields.model_fields_set else by_config


def _end_tokens(fields: TokenFields, vocab_size: int) -> frozenset[int]:
    eos = fields.eos_token_id
    ids = frozenset([eos] if isinstance(eos, int) else eos or ())
    if ids and max(ids) >= vocab_size:
        raise ConfigError(f"eos_token_id {max(ids)} should be below vocab_size, which is {vocab_size}")
    return ids


def _of_text(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a multimodal file's language model: text alone is computed."""
    text = raw.get("text_config")
    if raw.get("model_type") not in ("qwen3_5", "qwen3_5_moe") or not isinstance(text, dict):
        return raw
    is_tied = bool(raw.get("tie_word_embeddings") or text.get("tie_word_embeddings"))  # either place may say so
    return {**text, "model_type": raw["model_type"], "tie_word_embeddings": is_tied}


def _refuse_unsupported(raw: Mapping[str, Any]) -> None:
    """Raise ConfigError for settings that would change the computation."""
    model_type = raw.get("model_type")
    if model_type not in SUPPORTED_MODEL_TYPES:
        raise ConfigError(
            f"model_type {shown(model_type)} is not supported; supported: {', '.join(SUPPORTED_MODEL_TYPES)}"
        )
    for name, only in _ONLY[model_type].items():
        value = raw.get(name, only)
        if value != only and (value or only):
            raise ConfigError(f"{name}={shown(value)} is not supported for {model_type}; only {only!r} is")
    if raw.get("quantization_config"):
        raise ConfigError(
            "quantization_config: quantized weights are not supported; save the model in bfloat16, float16 or float32"
        )
