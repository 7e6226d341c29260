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
"""By name. Loaded when asked: each brings what only it needs."""

PREFERRED = {"cuda": ("triton", "torch"), "cpu": ("onednn", "torch")}
"""By kind of device; the first that can is taken."""


def choose_ops(device: torch.device, dtype: torch.dtype) -> tuple[Ops, str]:
    """Return the ops, and their name with the reason."""
    refusals: list[str] = []
    for name in PREFERRED[device.type]:
        way = WAYS[name]()
        refusal = way.refusal(device, dtype)
        if refusal is None:
            return way(), f"{name} ({'; '.join([way.virtue, *refusals])})"
        refusals.append(f"not {name}: {refusal}")
    raise AssertionError("torch serves everything")
