"""The machine of a measurement, and how quiet it was."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter, process_time


def facts(threads: int) -> dict[str, str | int]:
    """Return the facts above a table: kind of machine, versions, date."""
    return {
        "date": date.today().isoformat(),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "threads": threads,
        "python": platform.python_version(),
        "torch": version("torch"),
        "labengine": _version("labengine"),
    }


def headline(reported: dict[str, str | int]) -> str:
    """Return the facts in one line."""
    return (
        f"{reported['date']}, {reported['processor']}, {reported['cores']} cores, {reported['threads']} threads, "
        f"Python {reported['python']}, torch {reported['torch']}"
    )


@dataclass(slots=True)
class Noise:
    """The share of all cores that other programs took, 0 to 1; None if the system does not report it."""

    share: float | None = None


@contextmanager
def listening_for_noise() -> Iterator[Noise]:
    """Measure the share of the cores taken inside the block by other processes and other guests of the host."""
    noise, before, own, started = Noise(), _busy_seconds(), process_time(), perf_counter()
    yield noise
    after, wall = _busy_seconds(), perf_counter() - started
    if before is not None and after is not None:
        others = after - before - (process_time() - own)
        noise.share = min(1.0, max(0.0, others / wall / (os.cpu_count() or 1)))


def _busy_seconds() -> float | None:
    """Return the seconds since the start in which cores were busy or stolen, summed over all cores."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(field) for field in file.readline().split()[1:9]]
    except OSError:
        return None
    idle, waiting = ticks[3:5]
    return (sum(ticks) - idle - waiting) / os.sysconf("SC_CLK_TCK")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    fastest = next(
        (flag for flag in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if flag in flags), platform.machine()
    )
    held = os.environ.get("LABENGINE_CPU")
    held_to = f", limited to {held}" if held else ""
    return f"{models[0] if models else platform.machine()} ({fastest}{held_to})"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
