"""Device and precision: the requested ones, else suitable ones for the machine; always with the reason."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from labengine.config import ConfigError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

BFLOAT16_CAPABILITY = (8, 0)
"""The oldest GPUs that compute in bfloat16; on older ones torch emulates it, slowly."""

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def on_the_host(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Run a function with the CPU as default device, regardless of the user's default."""

    @wraps(function)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with torch.device("cpu"):
            return function(*args, **kwargs)

    return run


def sent(values: Tensor, device: torch.device) -> Tensor:
    """Copy a CPU tensor to the device from pinned memory; from other memory the host would wait for the copy."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values


class ComingBack:
    """A copy of a device tensor on its way to the host. Waiting for it does not wait for later launches."""

    def __init__(self, values: Tensor) -> None:
        self._values = values
        self._is_there: torch.cuda.Event | None = None
        if values.device.type == "cuda":
            self._values = torch.empty_like(values, device="cpu", pin_memory=True).copy_(values, non_blocking=True)
            self._is_there = torch.cuda.Event()
            self._is_there.record(torch.cuda.current_stream(values.device))

    def awaited(self) -> Tensor:
        """Return the copy, once it is complete."""
        if self._is_there is not None:
            self._is_there.synchronize()
        return self._values


def choose_device(requested: str | torch.device | None) -> tuple[torch.device, str]:
    """Return the device, and its name with the reason. Raises ConfigError for an unknown or absent device."""
    if requested is None:
        return _default_device()
    try:
        device = torch.device(requested)
    except (RuntimeError, TypeError, ValueError):
        raise ConfigError(f"device must be 'cpu', 'cuda' or 'cuda:N', got {requested!r}") from None
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device must be 'cpu' or 'cuda', got {requested!r}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"no device {requested!r}: torch sees {torch.cuda.device_count()} GPUs; use 'cpu'")
    device = _numbered(device)
    return device, f"{device} (asked for)"


def _default_device() -> tuple[torch.device, str]:
    if torch.cuda.is_available():
        device = _numbered(torch.device("cuda"))
        return device, f"{device} ({torch.cuda.get_device_name(device)})"
    return torch.device("cpu"), "cpu (torch sees no GPU)"


def _numbered(device: torch.device) -> torch.device:
    """Return a GPU with its number: CUDA has a current device per thread, and a lab may step in another thread."""
    if device.type != "cuda" or device.index is not None:
        return device
    return torch.device("cuda", torch.cuda.current_device())


def choose_dtype(
    requested: str | torch.dtype | None, device: torch.device, *, fits_float16: bool
) -> tuple[torch.dtype, str]:
    """Return the dtype of weights and KV, and its name with the reason.

    fits_float16: False for a model with activations beyond float16's range. Raises ConfigError for a dtype not in
    DTYPES.
    """
    if requested is None:
        name, reason = _default_dtype(device, fits_float16)
        return DTYPES[name], f"{name} ({reason})"
    name = str(requested).removeprefix("torch.")
    if name not in DTYPES:
        raise ConfigError(f"dtype must be one of {', '.join(DTYPES)}, got {requested!r}")
    return DTYPES[name], f"{name} (asked for)"


def _default_dtype(device: torch.device, fits_float16: bool) -> tuple[str, str]:
    """Return the default's name and the reason: kernels and graphs need a GPU with native support for the dtype."""
    if device.type == "cpu":
        return "float32", "the default on cpu"
    capability = torch.cuda.get_device_capability(device)
    if capability >= BFLOAT16_CAPABILITY:
        return "bfloat16", "the default on cuda"
    reason = "sm_{}{} has no bfloat16".format(*capability)
    if fits_float16:
        return "float16", reason
    return "float32", f"{reason}, and this model's activations exceed float16"
