"""Reads config.json and generation_config.json. Settings that the engine cannot compute are refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labengine.config import ConfigError
from labengine.engine.families.table import FAMILIES
from labengine.engine.layers import Family
from labengine.engine.model_config import ModelConfig
from labengine.engine.model_files.config_fields import TokenFields
from labengine.engine.model_files.json_file import errors_about, read_object, shown, validated


def load_config(model_dir: Path) -> ModelConfig:
    """Read both files of a model directory. Raises ConfigError for a model this engine cannot compute."""
    path = model_dir / "config.json"
    raw: Mapping[str, Any] = read_object(path)
    with errors_about(path):
        family = _family(raw)
        raw = _of_text(raw) if family.is_multimodal else raw
        _refuse_unsupported(raw, family.only)
    fields = validated(family.fields, raw, path)
    with errors_about(path):
        layers = fields.layers
        by_config = _end_tokens(fields, fields.vocab_size)
    return ModelConfig(
        model_type=fields.model_type,
        vocab_size=fields.vocab_size,
        hidden_size=fields.hidden_size,
        intermediate_size=fields.mlp_size,
        layers=layers,
        recurrence=fields.recurrence,
        mixture=fields.mixture,
        num_heads=fields.num_attention_heads,
        num_kv_heads=fields.num_key_value_heads or fields.num_attention_heads,
        head_dim=fields.head_size,
        attention_scale=fields.attention_scale,
        rms_norm_eps=fields.rms_norm_eps,
        max_model_len=fields.max_position_embeddings,
        tie_word_embeddings=fields.is_tied,
        eos_token_ids=_end_tokens_of_generation(model_dir, fields.vocab_size, by_config),
        multipliers=fields.multipliers,
        fits_float16=family.fits_float16,
        own_module=family.own_module,
    )


def _family(raw: Mapping[str, Any]) -> Family:
    model_type = raw.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise ConfigError(f"model_type {shown(model_type)} is not supported; supported: {', '.join(FAMILIES)}")
    return FAMILIES[model_type]


def _of_text(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings of a multimodal file's language model, as only text is computed."""
    text = raw.get("text_config")
    if not isinstance(text, dict):
        return raw
    is_tied = bool(raw.get("tie_word_embeddings") or text.get("tie_word_embeddings"))  # either place may have it
    return {**text, "model_type": raw["model_type"], "tie_word_embeddings": is_tied}


def _refuse_unsupported(raw: Mapping[str, Any], only: Mapping[str, Any]) -> None:
    """Raise ConfigError for settings that would change the computation. only: the supported value of each."""
    for name, supported in only.items():
        value = raw.get(name, supported)
        if value != supported and (value or supported):
            model_type = raw["model_type"]
            raise ConfigError(f"{name} must be {supported!r} for {model_type}, got {shown(value)}")
    if raw.get("quantization_config"):
        raise ConfigError(
            "quantization_config: quantized weights are not supported; save the model in bfloat16, float16 or float32"
        )


def _end_tokens_of_generation(model_dir: Path, vocab_size: int, by_config: frozenset[int]) -> frozenset[int]:
    """Return generation_config.json's end tokens if it has the field, even an empty one; else those of config.json."""
    path = model_dir / "generation_config.json"
    if not path.exists():
        return by_config
    fields = validated(TokenFields, read_object(path), path)
    with errors_about(path):
        by_generation = _end_tokens(fields, vocab_size)
    return by_generation if "eos_token_id" in fields.model_fields_set else by_config


def _end_tokens(fields: TokenFields, vocab_size: int) -> frozenset[int]:
    eos = fields.eos_token_id
    ids = frozenset([eos] if isinstance(eos, int) else eos or ())
    if ids and max(ids) >= vocab_size:
        raise ConfigError(f"eos_token_id must be below vocab_size, which is {vocab_size}, got {max(ids)}")
    return ids
