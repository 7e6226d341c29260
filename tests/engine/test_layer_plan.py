"""Layers that share a KV-cache group, compared with vLLM 0.32's groups of the same layers."""

from __future__ import annotations

import pytest

from labengine.config import GroupSpec
from labengine.engine.layer_plan import kv_groups

# Recorded from vLLM 0.32 (get_kv_cache_groups): "s" has a window of 512, "f" attends to everything.
VLLM = {
    "sssssf" * 3: [
        ("s", [0, 6, 12]),
        ("s", [1, 7, 13]),
        ("s", [2, 8, 14]),
        ("s", [3, 9, 15]),
        ("s", [4, 10, 16]),
        ("f", [5, 11, 17]),
    ],
    "fsfs": [("f", [0, 2]), ("s", [1, 3])],
    "fsss": [("f", [0]), ("s", [1]), ("s", [2]), ("s", [3])],
    "ssf": [("s", [0]), ("s", [1]), ("f", [2])],
    "ffsss": [("f", [0, 1]), ("s", [2, 4]), ("s", [3])],
    "ffsssss": [("f", [0, 1]), ("s", [2, 5]), ("s", [3, 6]), ("s", [4])],
    "sfsff": [("s", [0, 2]), ("f", [1, 4]), ("f", [3])],
    "ffffsss": [("f", [0, 1, 2, 3]), ("s", [4, 5, 6])],
    "sf" * 12 + "f": [("s", list(range(0, 24, 2))), ("f", [*range(1, 24, 2), 24])],
    "fffffs": [("f", [0]), ("f", [1]), ("f", [2]), ("f", [3]), ("f", [4]), ("s", [5])],
    "sssss": [("s", [0, 1, 2, 3, 4])],
    "ffff": [("f", [0, 1, 2, 3])],
}


@pytest.mark.parametrize("kinds", VLLM)
def test_groups_are_those_of_vllm(kinds: str) -> None:
    specs, group_of_layer = kv_groups([512 if kind == "s" else "full" for kind in kinds], 16)
    layers = [[layer for layer, its_group in enumerate(group_of_layer) if its_group == g] for g in range(len(specs))]
    by_kind = {"s": GroupSpec(16, "sliding_window", 512), "f": GroupSpec(16)}
    assert list(zip(specs, layers, strict=True)) == [(by_kind[kind], layers) for kind, layers in VLLM[kinds]]


def test_windows_of_two_lengths_never_share_a_group() -> None:
    specs, group_of_layer = kv_groups([8, 16, 8, "full"], 4)
    assert [spec.window for spec in specs] == [8, 8, 16, None]
    assert group_of_layer == (0, 2, 1, 3)


def test_layers_with_a_state_make_one_group_beside_those_of_attention() -> None:
    specs, group_of_layer = kv_groups(["state", "state", "full", "state", 8, "full", 8], 4)
    assert specs == (GroupSpec(4, "state"), GroupSpec(4), GroupSpec(4, "sliding_window", 8))
    assert group_of_layer == (0, 0, 1, 0, 2, 1, 2)
