"""A driver for Triton without a device: kernels are specialized and compiled as for a GPU, but launches do nothing.

So the host's side of a launch runs as usual, and all kernels of a test or a model can be compiled, counted and kept in
Triton's cache on a machine without a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from labengine.engine.attention.triton_tiles import Gpu

GPUS = {
    75: Gpu((7, 5), 40),
    80: Gpu((8, 0), 108),
    86: Gpu((8, 6), 84),
    89: Gpu((8, 9), 128),
    90: Gpu((9, 0), 132),
    100: Gpu((10, 0), 148),
    120: Gpu((12, 0), 170),
}
"""One GPU per capability."""
SHARED_MEMORY = 232_448
"""Bytes of shared memory of a program on sm_90."""
NUMBERS = count()
"""Numbers of devices. A kernel keeps compiled code by device number, so each driver needs a different one."""


class StandinUtils:
    """Loads nothing."""

    @staticmethod
    def load_binary(name: str, kernel: bytes, shared: int, device: int) -> tuple[object, object, int, int, int]:
        """Return module, function, registers, spills and maximum threads, like Triton's."""
        return "module", "function", 32, 0, 1024

    @staticmethod
    def get_device_properties(device: int) -> dict[str, int]:
        """Return an H100's properties."""
        return {"max_shared_mem": SHARED_MEMORY, "multiprocessor_count": 132, "warpSize": 32}


class StandinLauncher:
    """Launches nothing."""

    global_scratch_size = profile_scratch_size = 0

    def __init__(self, source: object, metadata: object) -> None:
        pass

    def __call__(self, *args: object) -> None:
        pass


class StandinDriver:
    """Replaces triton.runtime.driver.active; tensors are on the CPU."""

    utils = StandinUtils()
    launcher_cls = StandinLauncher

    def __init__(self, capability: int = 90) -> None:
        self._target = GPUTarget("cuda", capability, 32)
        self._number = next(NUMBERS)

    def get_current_device(self) -> int:
        """Return this driver's only device, whose number is unique."""
        return self._number

    def set_current_device(self, device: int) -> None:
        """Do nothing, as there is only one device."""

    def get_current_stream(self, device: int | None = None) -> int:
        """Return the default stream."""
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        """Return major and minor number."""
        return divmod(self._target.arch, 10)

    def get_current_target(self) -> GPUTarget:
        """Return the target of compilation."""
        return self._target

    def get_active_torch_device(self) -> torch.device:
        """Return the device of tensors."""
        return torch.device("cpu")

    @staticmethod
    def map_python_to_cpp_type(kind: str) -> str:
        """Return the kind unchanged, as no launcher is compiled."""
        return kind

    @staticmethod
    def is_active() -> bool:
        """Return True."""
        return True


@contextmanager
def without_device(capability: int = 90) -> Iterator[None]:
    """Have kernels compiled for this capability, but not run. TRITON_INTERPRET must not be set."""
    attribute = "_active" if hasattr(driver, "_active") else "active"  # Triton 3.2 has the second one only
    with patch.object(driver, attribute, StandinDriver(capability)):
        yield


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel: its compiled code, and its arguments and options by name."""

    compiled: Any
    arguments: Mapping[str, Any]


Launches = dict[str, list[Launch]]
"""Launches by the kernel's name."""


@contextmanager
def compiling(capability: int) -> Iterator[Launches]:
    """Have every launch compile its kernel without running it; record the launches."""
    launches: Launches = {}
    run = JITFunction.run

    def compile_only(kernel: Any, *args: Any, grid: tuple[int, ...], warmup: bool, **named: Any) -> None:
        assert all(size > 0 for size in grid)
        compiled = run(kernel, *args, grid=grid, warmup=True, **named)
        arguments = {**dict(zip(kernel.arg_names, args, strict=False)), **named}
        launches.setdefault(kernel.fn.__name__, []).append(Launch(compiled, arguments))

    with without_device(capability), patch.object(JITFunction, "run", compile_only):
        yield launches
