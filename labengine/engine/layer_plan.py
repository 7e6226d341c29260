"""Each layer's kind (full attention, a window, or a state), its rope and its KV-cache group.

The kinds come from config.json. Layers that keep the same tokens belong together, but a group's block holds the KV of
all its layers, and groups of unequal size could not share one pool. So each kind of attention is divided into groups of
one size, as in vLLM 0.32 (v1/core/kv_cache_utils.py). Gemma-3-270M has 15 layers with a window and 3 without:

    group 0   layers 0  6 12   window        group 3   layers 3  9 15   window
    group 1   layers 1  7 13   window        group 4   layers 4 10 16   window
    group 2   layers 2  8 14   window        group 5   layers 5 11 17   full

All layers with a state make one group; its block holds one state of each, in separate memory (kv_tensors.py). The
groups are in the order in which the model's layers first need them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from labengine.config import GroupSpec
from labengine.engine.recurrence_sizes import LayerState
from labengine.engine.rope import RopeSpec

FULL, SLIDING, CONV, LINEAR = "full_attention", "sliding_attention", "conv", "linear_attention"
"""Values of config.json's layer_types; the last two are layers with a state."""

LayerKind = int | Literal["full", "state"]
"""Tokens of the window, for attention layers that have one."""


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """One layer's attention: to all earlier tokens, or to the last `window` tokens including the token itself."""

    window: int | None
    rope: RopeSpec

    @property
    def kind(self) -> LayerKind:
        """The layer's kind: layers of one kind keep KV of the same tokens."""
        return "full" if self.window is None else self.window


@dataclass(frozen=True, slots=True)
class StateSpec:
    """One layer's state, instead of attention."""

    state: LayerState
    kind: LayerKind = "state"


LayerSpec = AttentionSpec | StateSpec


PADDING_LIMIT = 1.5
"""If the kinds' counts differ by less than this factor, each kind makes one group; the smaller one leaves part of its
blocks unused."""


def kv_groups(
    kinds: Sequence[LayerKind], block_size: int, checkpoint_alignment: int | None = None
) -> tuple[tuple[GroupSpec, ...], tuple[int, ...]]:
    """Return a model's groups, given each layer's kind, and the group of each layer.

    checkpoint_alignment: for the layers with states; see GroupSpec.
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
    """Return the number of layers per group, given the number of layers of each kind.

    It is the count of the rarest kind, unless that causes much padding.
    """
    smallest, largest = min(counts), max(counts)
    return largest if largest < smallest * PADDING_LIMIT else smallest


def _spec(block_size: int, kind: LayerKind, checkpoint_alignment: int | None) -> GroupSpec:
    if kind == "state":
        return GroupSpec(block_size, kind, checkpoint_alignment=checkpoint_alignment)
    return GroupSpec(block_size, "sliding_window", kind) if isinstance(kind, int) else GroupSpec(block_size, kind)
