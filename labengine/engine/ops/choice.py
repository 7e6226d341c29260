"""Which ops surround attention: the fastest that can serve device and dtype."""

from __future__ import annotations

from collections.abc import Callable

import torch

from labengine.engine.ops import Ops


def _triton() -> type[Ops]:
    from labengine.engine.ops.triton import TritonOps

    return TritonOps


def _onednn() -> type[Ops]:
    from labengine.engine.ops.onednn import OneDNNOps

    return OneDNNOps


def _torch() -> type[Ops]:
    from labengine.engine.ops.torch_ops import TorchOps

    return TorchOps


WAYS: dict[str, Callable[[], type[Ops]]] = {"triton": _triton, "onednn": _onednn, "torch": _torch}
"""By name, and the first that can is taken."""

AT_HOME = {"triton": "cuda", "onednn": "cpu"}
"""The device on which one would miss it."""


def choose_ops(device: torch.device, dtype: torch.dtype) -> tuple[Ops, str]:
    """The ops, and their name with the reason."""
    refusals: list[str] = []
    for name, load in WAYS.items():
        refusal = load().refusal(device, dtype)
        if refusal is None:
            return load()(), f"{name} ({'; '.join([load().virtue, *refusals])})"
        if AT_HOME[name] == device.type:
            refusals.append(f"not {name}: {refusal}")
    raise AssertionError("torch serves everything")
