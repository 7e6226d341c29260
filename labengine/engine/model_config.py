"""What config.json says about a model: its sizes and layers. Anything we cannot compute is refused here, by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labengine.config import ConfigError, GroupSpec
from labengine.engine.kv_layout import kv_groups
from labengine.engine.layer_plan import LayerSpec, layer_plan

_LLAMA_LIKE = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False}
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
    "qwen3": _LLAMA_LIKE,
    "gemma3_text": _GEMMA3,
}
"""Per model type, settings that change the computation, with the one value that we write."""

SUPPORTED_MODEL_TYPES = tuple(_ONLY)

_DEFAULTS: dict[str, dict[str, Any]] = {
    "qwen3": {"head_dim": 128},
    "gemma3_text": {"head_dim": 256, "query_pre_attn_scalar": 256, "tie_word_embeddings": True},
}
"""What a config.json may leave out, as in transformers; another model's head_dim is hidden_size over heads."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The sizes of a decoder-only transformer, in the units of config.json."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: tuple[LayerSpec, ...]
    num_heads: int
    num_kv_heads: int
    head_dim: int
    attention_scale: float
    """What the products of queries and keys are multiplied by."""
    rms_norm_eps: float
    max_model_len: int
    tie_word_embeddings: bool
    eos_token_ids: frozenset[int]

    @property
    def num_layers(self) -> int:
        """Decoder layers, each with KV of its own."""
        return len(self.layers)

    def kv_groups(self, block_size: int) -> tuple[tuple[GroupSpec, ...], tuple[int, ...]]:
        """The model's KV-cache groups, in blocks of block_size tokens, and the group of each layer."""
        return kv_groups([layer.window for layer in self.layers], block_size)

    @classmethod
    def load(cls, model_dir: Path) -> ModelConfig:
        """Read config.json and generation_config.json. Raises ConfigError for a model this engine cannot compute."""
        raw = _read_json(model_dir / "config.json")
        generation_file = model_dir / "generation_config.json"
        generation = _read_json(generation_file) if generation_file.exists() else {}
        _refuse_unsupported(raw)
        try:
            return cls._from_json({**_DEFAULTS.get(raw["model_type"], {}), **raw}, generation)
        except KeyError as error:
            raise ConfigError(f"{model_dir / 'config.json'} lacks {error.args[0]!r}") from None

    @classmethod
    def _from_json(cls, raw: Mapping[str, Any], generation: Mapping[str, Any]) -> ModelConfig:
        num_heads = raw["num_attention_heads"]
        head_dim = raw.get("head_dim") or raw["hidden_size"] // num_heads
        eos = generation.get("eos_token_id", raw.get("eos_token_id"))
        return cls(
            model_type=raw["model_type"],
            vocab_size=raw["vocab_size"],
            hidden_size=raw["hidden_size"],
            intermediate_size=raw["intermediate_size"],
            layers=layer_plan(raw),
            num_heads=num_heads,
            num_kv_heads=raw.get("num_key_value_heads") or num_heads,
            head_dim=head_dim,
            attention_scale=raw.get("query_pre_attn_scalar", head_dim) ** -0.5,
            rms_norm_eps=raw["rms_norm_eps"],
            max_model_len=raw["max_position_embeddings"],
            tie_word_embeddings=raw.get("tie_word_embeddings", False),
            eos_token_ids=frozenset([eos] if isinstance(eos, int) else eos or ()),
        )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path} is missing: a model directory holds config.json and *.safetensors") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path} should hold one JSON object")
    return content


def _refuse_unsupported(raw: Mapping[str, Any]) -> None:
    """Every setting that would change the computation into one that we do not write."""
    model_type = raw.get("model_type")
    if model_type not in SUPPORTED_MODEL_TYPES:
        raise ConfigError(f"model_type {model_type!r} is not supported; supported: {', '.join(SUPPORTED_MODEL_TYPES)}")
    for name, only in _ONLY[model_type].items():
        value = raw.get(name, only)
        if value != only and (value or only):
            raise ConfigError(f"{name}={value!r} is not supported for {model_type}; only {only!r} is")
    if raw.get("quantization_config"):
        raise ConfigError("quantized weights are not supported; save the model in bfloat16, float16 or float32")
