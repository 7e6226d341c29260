"""Each layer's attention (full, or through a window), its rope and its KV-cache group.

Attention and rope are read from config.json. Layers that keep the same tokens belong together, but a group's block
holds the KV of all its layers; groups of unequal size could not share one pool. So each kind of layer is divided into
groups of one size, as vLLM 0.32 does it (v1/core/kv_cache_utils.py). Gemma-3-270M, 15 layers with a window and 3
without:

    group 0   layers 0  6 12   window        group 3   layers 3  9 15   window
    group 1   layers 1  7 13   window        group 4   layers 4 10 16   window
    group 2   layers 2  8 14   window        group 5   layers 5 11 17   full

The groups are in the order in which the model's layers first need them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labengine.config import ConfigError, GroupSpec
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


# -- KV-cache groups ---------------------------------------------------------------------------------------------------


PADDING_LIMIT = 1.5
"""Kinds whose counts differ by less than this factor make one group each; the smaller leaves part of its blocks
unused."""


def kv_groups(windows: Sequence[int | None], block_size: int) -> tuple[tuple[GroupSpec, ...], tuple[int, ...]]:
    """Return a model's groups, given each layer's window (None: full attention), and the group of each layer."""
    layers_of_kind: dict[int | None, list[int]] = defaultdict(list)
    for layer, window in enumerate(windows):
        layers_of_kind[window].append(layer)
    size = group_size([len(layers) for layers in layers_of_kind.values()])
    specs: list[GroupSpec] = []
    group_of_layer = [0] * len(windows)
    for window, layers in layers_of_kind.items():
        num_groups = -(-len(layers) // size)
        for position, layer in enumerate(layers):
            group_of_layer[layer] = len(specs) + position % num_groups
        specs += [_spec(block_size, window)] * num_groups
    return tuple(specs), tuple(group_of_layer)


def group_size(counts: Sequence[int]) -> int:
    """Return the number of layers per group, given the layers of each kind.

    The rarest kind's, unless that pads much.
    """
    smallest, largest = min(counts), max(counts)
    return largest if largest < smallest * PADDING_LIMIT else smallest


def _spec(block_size: int, window: int | None) -> GroupSpec:
    return GroupSpec(block_size) if window is None else GroupSpec(block_size, "sliding_window", window)
