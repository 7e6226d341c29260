"""Each layer's way to look back (attention, full or through a window, or a state), its rope and its KV-cache group.

Both are read from config.json. Layers that keep the same tokens belong together, but a group's block
holds the KV of all its layers; groups of unequal size could not share one pool. So each kind of attention is divided
into groups of one size, as vLLM 0.32 does it (v1/core/kv_cache_utils.py). Gemma-3-270M, 15 layers with a window and 3
without:

    group 0   layers 0  6 12   window        group 3   layers 3  9 15   window
    group 1   layers 1  7 13   window        group 4   layers 4 10 16   window
    group 2   layers 2  8 14   window        group 5   layers 5 11 17   full

All layers with a state make one group: a block of it holds one state of each, in memory of their own (kv_tensors.py).
The groups are in the order in which the model's layers first need them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from labengine.config import ConfigError, GroupSpec
from labengine.engine.recurrence_sizes import LayerState
from labengine.engine.rope import NO_ROPE, RopeSpec, local_and_global_rope, partial_rope_spec, rope_spec

FULL, SLIDING, CONV, LINEAR = "full_attention", "sliding_attention", "conv", "linear_attention"
"""Values of config.json's layer_types; the last two are layers with a state."""

MAMBA_NAMES = {"mamba": LINEAR, "attention": FULL}
"""Granite's names of kinds in the files of before transformers 5."""

DELTA_NETS = ("qwen3_next", "qwen3_5_text", "qwen3_5", "qwen3_5_moe_text", "qwen3_5_moe")
"""Families that mix gated delta nets and attention."""

DEFAULT_ROTARY_SHARE = {"bamba": 0.5, **dict.fromkeys(DELTA_NETS, 0.25)}
"""Families that rotate part of a head, and which part unless config.json says so."""

WITHOUT_LAYER_TYPES = ("mistral", "mixtral", "qwen3_moe", "bamba")
"""Families whose layers follow from other settings alone, whatever a file says of layer_types."""

LayerKind = int | Literal["full", "state"]
"""Of the attention layers with a window: its tokens."""


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """One layer's attention: to all earlier tokens, or to the last `window` tokens including the token itself."""

    window: int | None
    rope: RopeSpec

    @property
    def kind(self) -> LayerKind:
        """Layers of one kind keep KV of the same tokens."""
        return "full" if self.window is None else self.window


@dataclass(frozen=True, slots=True)
class StateSpec:
    """One layer's state, in place of attention."""

    state: LayerState
    kind: LayerKind = "state"


LayerSpec = AttentionSpec | StateSpec


def layer_plan(raw: Mapping[str, Any], state: LayerState = ()) -> tuple[LayerSpec, ...]:
    """Return one LayerSpec per layer. Raises ConfigError for unsupported kinds of layers or a missing window.

    state: that of the model's layers with states.
    """
    kinds = _layer_types(raw)
    if len(kinds) != raw["num_hidden_layers"]:
        raise ConfigError(f"layer_types names {len(kinds)} layers, num_hidden_layers is {raw['num_hidden_layers']}")
    if raw["model_type"] == "gemma3_text":
        local, everywhere = local_and_global_rope(raw)
    elif (share := DEFAULT_ROTARY_SHARE.get(raw["model_type"])) is not None:
        local = everywhere = partial_rope_spec(raw, share)
    elif raw["model_type"] == "granitemoehybrid" and raw.get("position_embedding_type") != "rope":
        local = everywhere = NO_ROPE
    else:
        local = everywhere = rope_spec(raw)
    specs: dict[str, LayerSpec] = {FULL: AttentionSpec(None, everywhere)}
    specs |= dict.fromkeys((CONV, LINEAR), StateSpec(state))
    if SLIDING in kinds:
        specs[SLIDING] = AttentionSpec(_window(raw), local)
    return tuple(specs[kind] for kind in kinds)


def _layer_types(raw: Mapping[str, Any]) -> list[str]:
    """Return the layer types of the file, else those of the family's rule."""
    layer_types = raw.get("layer_types")
    kinds = (
        [MAMBA_NAMES.get(kind, kind) for kind in layer_types]
        if layer_types and raw["model_type"] not in WITHOUT_LAYER_TYPES
        else _layer_types_by_rule(raw)
    )
    if SLIDING in kinds and raw["model_type"] == "llama":
        raise ConfigError("layers with sliding-window attention are not supported for llama; only full attention is")
    return kinds


def _layer_types_by_rule(raw: Mapping[str, Any]) -> list[str]:
    num_layers = raw["num_hidden_layers"]
    family = raw["model_type"]
    if family == "gemma3_text":
        pattern = raw.get("sliding_window_pattern", 6)
        return [SLIDING if (layer + 1) % pattern else FULL for layer in range(num_layers)]
    if family in ("mistral", "mixtral") and raw.get("sliding_window") is not None:
        return [SLIDING] * num_layers
    if family == "qwen3" and raw.get("use_sliding_window"):
        first = raw["max_window_layers"]
        return [FULL if layer < first else SLIDING for layer in range(num_layers)]
    if family == "lfm2" and "full_attn_idxs" in raw:
        return [FULL if layer in raw["full_attn_idxs"] else CONV for layer in range(num_layers)]
    if family == "granitemoehybrid":
        return [LINEAR] * num_layers
    if family == "bamba":
        return [FULL if layer in raw.get("attn_layer_indices", ()) else LINEAR for layer in range(num_layers)]
    if family in DELTA_NETS:
        interval = raw.get("full_attention_interval", 4)
        return [LINEAR if (layer + 1) % interval else FULL for layer in range(num_layers)]
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


def kv_groups(
    kinds: Sequence[LayerKind], block_size: int, checkpoint_alignment: int | None = None
) -> tuple[tuple[GroupSpec, ...], tuple[int, ...]]:
    """Return a model's groups, given each layer's kind, and the group of each layer.

    checkpoint_alignment: that of the layers with states (GroupSpec).
    """
    layers_of_kind: dict[LayerKind, list[int]] = defaultdict(list)
    for layer, kind in enumerate(kinds):
        layers_of_kind[kind].append(layer)
    counts = [len(layers) for kind, layers in layers_of_kind.items() if kind != "state"]
    size = group_size(counts) if counts else 1
    specs: list[GroupSpec] = []
    group_of_layer = [0] * len(kinds)
    for kind, layers in layers_of_kind.items():
        num_groups = 1 if kind == "state" else -(-len(layers) // size)
        for position, layer in enumerate(layers):
            group_of_layer[layer] = len(specs) + position % num_groups
        specs += [_spec(block_size, kind, checkpoint_alignment)] * num_groups
    return tuple(specs), tuple(group_of_layer)


def group_size(counts: Sequence[int]) -> int:
    """Return the number of layers per group, given the layers of each kind.

    The rarest kind's, unless that pads much.
    """
    smallest, largest = min(counts), max(counts)
    return largest if largest < smallest * PADDING_LIMIT else smallest


def _spec(block_size: int, kind: LayerKind, checkpoint_alignment: int | None) -> GroupSpec:
    if kind == "state":
        return GroupSpec(block_size, kind, checkpoint_alignment=checkpoint_alignment)
    return GroupSpec(block_size, "sliding_window", kind) if isinstance(kind, int) else GroupSpec(block_size, kind)
