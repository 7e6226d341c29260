"""The layout of a model's layers in KV-cache groups, such that a block of any group takes the same memory.

Layers that keep the same tokens belong together, but a group's block holds the KV of all its layers; groups of unequal
size could not share one pool. So each kind of layer is divided into groups of one size, as vLLM 0.32 does it
(v1/core/kv_cache_utils.py). Gemma-3-270M, 15 layers with a window and 3 without:

    group 0   layers 0  6 12   window        group 3   layers 3  9 15   window
    group 1   layers 1  7 13   window        group 4   layers 4 10 16   window
    group 2   layers 2  8 14   window        group 5   layers 5 11 17   full

The groups are in the order in which the model's layers first need them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from labengine.config import GroupSpec

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
