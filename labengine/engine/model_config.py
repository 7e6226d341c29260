"""What config.json says about a model: its sizes and its rope. Anything we cannot compute is refused here, by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labengine.config import ConfigError
from labengine.engine.rope import RopeSpec, rope_spec

SUPPORTED_MODEL_TYPES = ("llama", "qwen3")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The sizes of a decoder-only transformer, in the units of config.json."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    max_model_len: int
    tie_word_embeddings: bool
    rope: RopeSpec
    eos_token_ids: frozenset[int]

    @classmethod
    def load(cls, model_dir: Path) -> ModelConfig:
        """Read config.json and generation_config.json. Raises ConfigError for a model this engine cannot compute."""
        raw = _read_json(model_dir / "config.json")
        generation_file = model_dir / "generation_config.json"
        generation = _read_json(generation_file) if generation_file.exists() else {}
        _refuse_unsupported(raw)
        try:
            return cls._from_json(raw, generation)
        except KeyError as error:
            raise ConfigError(f"{model_dir / 'config.json'} lacks {error.args[0]!r}") from None

    @classmethod
    def _from_json(cls, raw: Mapping[str, Any], generation: Mapping[str, Any]) -> ModelConfig:
        num_heads = raw["num_attention_heads"]
        eos = generation.get("eos_token_id", raw.get("eos_token_id"))
        return cls(
            model_type=raw["model_type"],
            vocab_size=raw["vocab_size"],
            hidden_size=raw["hidden_size"],
            intermediate_size=raw["intermediate_size"],
            num_layers=raw["num_hidden_layers"],
            num_heads=num_heads,
            num_kv_heads=raw.get("num_key_value_heads") or num_heads,
            head_dim=raw.get("head_dim") or raw["hidden_size"] // num_heads,
            rms_norm_eps=raw["rms_norm_eps"],
            max_model_len=raw["max_position_embeddings"],
            tie_word_embeddings=raw.get("tie_word_embeddings", False),
            rope=rope_spec(raw),
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
    for name, only in (("hidden_act", "silu"), ("attention_bias", False), ("mlp_bias", False)):
        if raw.get(name, only) != only:
            raise ConfigError(f"{name}={raw[name]!r} is not supported for {model_type}; only {only!r} is")
    if set(raw.get("layer_types") or ()) - {"full_attention"} or raw.get("use_sliding_window"):
        raise ConfigError("layers with sliding-window attention are not supported; only full attention is")
    if raw.get("quantization_config"):
        raise ConfigError("quantized weights are not supported; save the model in bfloat16, float16 or float32")
