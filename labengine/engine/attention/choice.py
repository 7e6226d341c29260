"""Which backend computes attention: the user's word, else the fastest one that device, dtype and block size allow."""

from __future__ import annotations

from collections.abc import Callable

from labengine.config import ConfigError
from labengine.engine.attention import AttentionBackend, AttentionSetting

BackendClass = type[AttentionBackend]


def _native() -> BackendClass:
    from labengine.engine.attention.native import NativeAttention

    return NativeAttention


def _triton() -> BackendClass:
    from labengine.engine.attention.triton import TritonAttention

    return TritonAttention


def _flash_attn() -> BackendClass:
    from labengine.engine.attention.flash_attn import FlashAttention

    return FlashAttention


def _torch() -> BackendClass:
    from labengine.engine.attention.torch_gather import TorchGather

    return TorchGather


BACKENDS: dict[str, Callable[[], BackendClass]] = {
    "flash_attn": _flash_attn,
    "triton": _triton,
    "cpu": _native,
    "torch": _torch,
}
"""By name. Loaded when asked: each brings what only it needs."""

PREFERRED = {"cuda": ("flash_attn", "triton", "torch"), "cpu": ("cpu", "torch")}
"""By kind of device; the first that can is taken."""


def choose_attention(asked: str | None, setting: AttentionSetting) -> tuple[AttentionBackend, str]:
    """Return the backend, and its name with the reason.

    ConfigError for one that is unknown or cannot serve this setting.
    """
    if asked is not None:
        return _asked_for(asked, setting)
    refusals: list[str] = []
    for name in PREFERRED[setting.device.type]:
        backend = BACKENDS[name]()
        refusal = backend.refusal(setting)
        if refusal is None:
            return backend(setting), f"{name} ({'; '.join([backend.virtue, *refusals])})"
        refusals.append(f"not {name}: {refusal}")
    raise AssertionError("torch serves every setting")


def _asked_for(asked: str, setting: AttentionSetting) -> tuple[AttentionBackend, str]:
    if asked not in BACKENDS:
        raise ConfigError(f"attention {asked!r} is unknown; use one of {', '.join(BACKENDS)}")
    backend = BACKENDS[asked]()
    refusal = backend.refusal(setting)
    if refusal is not None:
        raise ConfigError(f"attention={asked!r} cannot run here: {refusal}")
    return backend(setting), f"{asked} (asked for)"
