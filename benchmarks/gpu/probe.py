"""The machine in a few lines: versions, failing imports, the card, compilers, loopback and the PCIe link."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

NEEDED = (
    "torch",
    "triton",
    "transformers",
    "tokenizers",
    "safetensors",
    "numpy",
    "huggingface-hub",
    "pydantic",
    "filelock",
    "psutil",
    "jinja2",
    "tqdm",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "hypothesis",
    "gguf",
    "xxhash",
)
"""Packages of the engine and of its tests; xxhash is nano-vLLM's."""
MODULES = ("torch", "triton", "transformers", "pytest", "labengine")
QUERY = "name,driver_version,memory.used,clocks.sm,clocks.mem,power.limit,pcie.link.gen.current,pcie.link.width.current"


def versions(packages: Iterable[str] = NEEDED, version_of: Callable[[str], str] = version) -> dict[str, str | None]:
    """Return each package's version, without importing it; None if it is not installed."""
    found: dict[str, str | None] = {}
    for package in packages:
        try:
            found[package] = version_of(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def described(found: dict[str, str | None], brought: Iterable[str] = ()) -> str:
    """Return one line with all installed packages, and those missing on the machine and in the folder."""
    missing = [package for package, number in found.items() if number is None]
    words = ", ".join(f"{package} {number}" for package, number in found.items() if number is not None)
    if lacking := [package for package in missing if package not in {*brought}]:
        words += f"; MISSING: {', '.join(lacking)}"
    if coming := [package for package in missing if package in {*brought}]:
        words += f"; brought along: {', '.join(coming)}"
    return words


def imports(modules: Iterable[str] = MODULES) -> Iterator[str]:
    """Import each module; yield how long it took, or why it failed."""
    for module in modules:
        started = time.perf_counter()
        try:
            importlib.import_module(module)
            yield f"import {module}: {time.perf_counter() - started:.1f} s"
        except Exception as error:  # a broken library may raise anything
            yield f"import {module}: FAILED: {type(error).__name__}: {error}"


def machine() -> Iterator[str]:
    yield f"Python {platform.python_version()} ({sys.executable}), kernel {platform.release()}, {os.cpu_count()} cores"
    names = ("gcc", "cc", "g++", "nvcc", "compute-sanitizer", "xz")
    yield ", ".join(f"{name}: {shutil.which(name) or 'missing'}" for name in names)
    try:
        yield f"localhost is {socket.getaddrinfo('localhost', 2333)[0][4][0]}"
    except OSError as error:
        yield f"localhost is unknown: {error}"
    command = f"nvidia-smi --query-gpu={QUERY} --format=csv,noheader; df -h /tmp | tail -1; free -g | sed -n 2p"
    yield subprocess.run(command, shell=True, capture_output=True, text=True, check=False).stdout.strip()


def card() -> Iterator[str]:
    """Yield torch's view of the current device, and the copy speed of pinned memory. Raises without a device."""
    import torch

    properties = torch.cuda.get_device_properties(0)
    yield (
        f"{properties.name}, sm_{properties.major}{properties.minor}, {properties.multi_processor_count} SMs, "
        f"{properties.total_memory >> 20} MiB, CUDA {torch.version.cuda}"
    )
    source = torch.empty(2**28, dtype=torch.uint8, pin_memory=True)
    target = source.cuda()
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before.record()
    target.copy_(source, non_blocking=True)
    after.record()
    after.synchronize()
    yield f"pinned memory to the device: {2**28 / before.elapsed_time(after) / 1e6:.1f} GB/s"


def main() -> None:
    for part in (machine, imports, card):
        for line in part():
            print(line, flush=True)


if __name__ == "__main__":
    main()
