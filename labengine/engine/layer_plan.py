"""Each layer's attention (full, or through a window) and its rope, read from config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from labengine.config import ConfigError
from labengine.engine.rope import RopeSpec, local_and_global_rope, rope_spec

FULL, SLIDING = "full_attention", "sliding_attention"
"""Values of config.json's layer_types."""


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One layer's attention: to all earlier tokens, or to the last `window` tokens including the token itself."""

    window: int | None
    rope: RopeSpec


def layer_plan(raw: Mapping[str, Any]) -> tuple[LayerSpec, ...]:
    """Return one LayerSpec per layer. Raises ConfigError for unsupported kinds of layers or a missing window."""
    kinds = _layer_types(raw)
    if len(kinds) != raw["num_hidden_layers"]:
        raise ConfigError(f"layer_types names {len(kinds)} layers, num_hidden_layers is {raw['num_hidden_layers']}")
    if raw["model_type"] == "gemma3_text":
        local, everywhere = local_and_global_rope(raw)
    else:
        local = everywhere = rope_spec(raw)
    specs = {FULL: LayerSpec(None, everywhere)}
    if SLIDING in kinds:
        specs[SLIDING] = LayerSpec(_window(raw), local)
    return tuple(specs[kind] for kind in kinds)


def _layer_types(raw: Mapping[str, Any]) -> list[str]:
    """Return the layer types of the file, else those of the family's rule."""
    layer_types = raw.get("layer_types")
    kinds = list(layer_types) if layer_types and raw["model_type"] != "mistral" else _layer_types_by_rule(raw)
    for kind in kinds:
        if kind not in (FULL, SLIDING):
            raise ConfigError(f"layers of type {kind!r} are not supported; {FULL} and {SLIDING} are")
    if SLIDING in kinds and raw["model_type"] == "llama":
        raise ConfigError("layers with sliding-window attention are not supported for llama; only full attention is")
    return kinds


def _layer_types_by_rule(raw: Mapping[str, Any]) -> list[str]:
    num_layers = raw["num_hidden_layers"]
    family = raw["model_type"]
    if family == "gemma3_text":
        pattern = raw.get("sliding_window_pattern", 6)
        return [SLIDING if (layer + 1) % pattern else FULL for layer in range(num_layers)]
    if family == "mistral" and raw.get("sliding_window") is not None:
        return [SLIDING] * num_layers
    if family == "qwen3" and raw.get("use_sliding_window"):
        first = raw["max_window_layers"]
        return [FULL if layer < first else SLIDING for layer in range(num_layers)]
    return [FULL] * num_layers


def _window(raw: Mapping[str, Any]) -> int:
    window = raw.get("sliding_window")
    if not isinstance(window, int) or window < 1:
        raise ConfigError(f"the model has layers with sliding-window attention, but sliding_window is {window!r}")
    return window
