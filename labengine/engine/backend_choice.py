"""The choice of backends for attention and the ops around it: the requested one, else the fastest possible.

A backend is imported only when it is tried, as each needs packages or a compiler that the others do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from labengine.config import ConfigError
from labengine.engine.attention import AttentionBackend, AttentionSetting
from labengine.engine.ops import Ops, OpsSetting

AttentionClass = type[AttentionBackend]
OpsClass = type[Ops]
Backend = TypeVar("Backend", AttentionClass, OpsClass)


def _native_attention() -> AttentionClass:
    from labengine.engine.attention.native import NativeAttention

    return NativeAttention


def _triton_attention() -> AttentionClass:
    from labengine.engine.attention.triton import TritonAttention

    return TritonAttention


def _flash_attention() -> AttentionClass:
    from labengine.engine.attention.flash_attn import FlashAttention

    return FlashAttention


def _torch_attention() -> AttentionClass:
    from labengine.engine.attention.torch_gather import TorchGather

    return TorchGather


def _triton_ops() -> OpsClass:
    from labengine.engine.ops.triton import TritonOps

    return TritonOps


def _onednn_ops() -> OpsClass:
    from labengine.engine.ops.torch_ops import OneDNNOps

    return OneDNNOps


def _torch_ops() -> OpsClass:
    from labengine.engine.ops.torch_ops import TorchOps

    return TorchOps


BACKENDS: dict[str, Callable[[], AttentionClass]] = {
    "flash_attn": _flash_attention,
    "triton": _triton_attention,
    "cpu": _native_attention,
    "torch": _torch_attention,
}
"""Loaders of attention backends, by name."""

OPS: dict[str, Callable[[], OpsClass]] = {"triton": _triton_ops, "onednn": _onednn_ops, "torch": _torch_ops}
"""Loaders of the ops around attention, by name."""

PREFERRED = {"cuda": ("flash_attn", "triton", "torch"), "cpu": ("cpu", "torch")}
PREFERRED_OPS = {"cuda": ("triton", "torch"), "cpu": ("onednn", "torch")}
"""Names by type of device; the first that can serve is used."""


def choose_attention(requested: str | AttentionClass | None, setting: AttentionSetting) -> tuple[AttentionBackend, str]:
    """Return the backend, and its name with the reason.

    requested: a name, or a runner's own class. Raises ConfigError if it is unknown or cannot serve this setting.
    """
    if isinstance(requested, type):
        own = requested.__name__
        served = _served(requested, setting, f"the runner's attention {own}")
        return served, f"{requested.name} ({own}, set by the runner)"
    if requested is not None:
        return _requested_attention(requested, setting)
    names = PREFERRED[setting.device.type]
    backend, line = _first(names, BACKENDS, lambda candidate: candidate.refusal(setting))
    return backend(setting), line


def choose_ops(setting: OpsSetting) -> tuple[Ops, str]:
    """Return the ops around attention, and their name with the reason."""
    names = PREFERRED_OPS[setting.device.type]
    ops, line = _first(names, OPS, lambda candidate: candidate.refusal(setting))
    return ops(), line


def _first(
    names: Iterable[str], loaders: dict[str, Callable[[], Backend]], refusal_of: Callable[[Backend], str | None]
) -> tuple[Backend, str]:
    """Return the first backend without a refusal, and a line with its advantage and the refusals before it."""
    refusals: list[str] = []
    for name in names:
        backend = loaders[name]()
        refusal = refusal_of(backend)
        if refusal is None:
            return backend, f"{name} ({'; '.join([backend.advantage, *refusals])})"
        refusals.append(f"not {name}: {refusal}")
    raise AssertionError("torch serves everything")


def _requested_attention(requested: str, setting: AttentionSetting) -> tuple[AttentionBackend, str]:
    if requested not in BACKENDS:
        raise ConfigError(f"attention must be one of {', '.join(BACKENDS)}, got {requested!r}")
    return _served(BACKENDS[requested](), setting, f"attention={requested!r}"), f"{requested} (asked for)"


def _served(backend: AttentionClass, setting: AttentionSetting, what: str) -> AttentionBackend:
    refusal = backend.refusal(setting)
    if refusal is not None:
        raise ConfigError(f"{what} cannot run here: {refusal}")
    return backend(setting)
