"""Device and precision: those asked for, else suitable ones for the machine; always with the reason."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

from labengine.config import ConfigError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def on_the_host(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Run a function with the CPU as default device, whatever default the user has set."""

    @wraps(function)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with torch.device("cpu"):
            return function(*args, **kwargs)

    return run


def choose_device(requested: str | torch.device | None) -> tuple[torch.device, str]:
    """Return the device, and its name with the reason. Raises ConfigError for one that is unknown or absent."""
    if requested is None:
        return _default_device()
    try:
        device = torch.device(requested)
    except (RuntimeError, TypeError, ValueError):
        raise ConfigError(f"device {requested!r} is no device; use 'cpu', 'cuda' or 'cuda:N'") from None
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device {requested!r} is not supported; use 'cpu' or 'cuda'")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device {requested!r} is not here (torch sees {torch.cuda.device_count()} GPUs); use 'cpu'")
    return device, f"{device} (asked for)"


def _default_device() -> tuple[torch.device, str]:
    if torch.cuda.is_available():
        return torch.device("cuda"), f"cuda ({torch.cuda.get_device_name()})"
    return torch.device("cpu"), "cpu (torch sees no GPU)"


def choose_dtype(requested: str | torch.dtype | None, device: torch.device) -> tuple[torch.dtype, str]:
    """Return the dtype of weights and KV, and its name with the reason.

    Raises ConfigError for any that is not in DTYPES.
    """
    if requested is None:
        name = "float32" if device.type == "cpu" else "bfloat16"
        return DTYPES[name], f"{name} (the default on {device.type})"
    name = str(requested).removeprefix("torch.")
    if name not in DTYPES:
        raise ConfigError(f"dtype {requested!r} is not supported; use one of {', '.join(DTYPES)}")
    return DTYPES[name], f"{name} (asked for)"
