"""This machine's limits: memory read bandwidth, and multiplications in fp32 and bf16.

Reading: all threads read 512 MiB, more than a cache keeps, each in 1, 4 or 8 streams. Multiplying: a C loop, compiled
on the spot ($CC, by default cc), multiplies numbers in registers, which is the processor's ceiling; torch's matmul of
2048 x 2048 shows a good library's speed. Each figure is the best of several tries.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from time import perf_counter

import torch

NUM_BYTES = 512 * 2**20
STREAMS = (1, 4, 8)
MAX_SECONDS = 2
"""Maximum seconds of one product."""
NAMES = {
    "read": "memory read, GB/s",
    "bf16": "bf16 in registers, GFLOP/s",
    "fp32": "fp32 in registers, GFLOP/s",
    "bf16_matmul": "bf16 matmul (torch), GFLOP/s",
    "fp32_matmul": "fp32 matmul (torch), GFLOP/s",
}

Figures = dict[str, float]


class Limits:
    """Measures the limits once per round, in this process; keeps its memory between rounds."""

    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)
        self._threads = threads
        self._memory = _large_memory()
        self._pool = ThreadPoolExecutor(threads)
        self._loops = _compiled_loops()

    def measure(self, tries: int = 7) -> Figures:
        """Return GB/s and GFLOP/s."""
        seconds = min(self._fastest(lambda: self.read(streams), tries) for streams in STREAMS)  # noqa: B023
        found = {"read": NUM_BYTES / seconds / 1e9}
        found["fp32_matmul"] = self._matmul(torch.float32, tries)
        found["bf16_matmul"] = self._matmul(torch.bfloat16, tries)
        for dtype, loop in (("fp32", "f32"), ("bf16", "bf16")):
            found[dtype] = max(self._in_registers(loop, tries), found[f"{dtype}_matmul"])
        return found

    def read(self, streams: int) -> None:
        """Read NUM_BYTES with all threads, each in that many streams."""
        part = NUM_BYTES // self._threads
        start = self._memory.data_ptr()
        self._together(lambda number: self._loops.read_memory(start + number * part, part, streams))

    def _in_registers(self, loop: str, tries: int) -> float:
        """Return GFLOP/s; 0.0 without such an instruction."""
        flops = getattr(self._loops, f"flops_per_round_{loop}")()
        if not flops:
            return 0.0
        rounds = int(2e9 / flops)
        multiply = getattr(self._loops, f"multiply_{loop}")
        seconds = self._fastest(lambda: self._together(lambda _: multiply(rounds, 0.5)), tries)
        return float(flops * rounds * self._threads / seconds / 1e9)

    def _matmul(self, dtype: torch.dtype, tries: int) -> float:
        """Return GFLOP/s, by a small product if a large one takes seconds, like bf16 on a processor without it."""
        found = 0.0
        for size in (256, 2048):
            if size == 256 or 2 * size**3 / 1e9 < found * MAX_SECONDS:
                left, right = torch.randn(2, size, size).to(dtype)
                found = 2 * size**3 / self._fastest(lambda: left @ right, tries) / 1e9  # noqa: B023
        return found

    def _together(self, work: Callable[[int], object]) -> None:
        list(self._pool.map(work, range(self._threads)))

    def _fastest(self, work: Callable[[], object], tries: int) -> float:
        """Return the seconds of the fastest run, after a warm-up."""
        work()
        seconds = []
        for _ in range(tries):
            started = perf_counter()
            work()
            seconds.append(perf_counter() - started)
        return min(seconds)


def _large_memory() -> torch.Tensor:
    """Return int64 words that have been written to, in huge pages if the system has them."""
    memory = mmap.mmap(-1, NUM_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.int64).fill_(1)


@cache
def _compiled_loops() -> ctypes.CDLL:
    """Compile limits.c for this processor."""
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "limits.so"
        flags = ["-O3", "-march=native", "-ffp-contract=fast", "-funroll-loops", "-shared", "-fPIC"]
        source = Path(__file__).with_name("limits.c")
        compiler = shlex.split(os.environ.get("CC", "cc"))
        subprocess.run([*compiler, *flags, str(source), "-o", str(built)], check=True)
        loops = ctypes.CDLL(str(built))
    loops.read_memory.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    loops.read_memory.restype = ctypes.c_uint64
    for suffix in ("f32", "bf16"):
        multiply, flops = getattr(loops, f"multiply_{suffix}"), getattr(loops, f"flops_per_round_{suffix}")
        multiply.argtypes, multiply.restype = [ctypes.c_int64, ctypes.c_float], ctypes.c_float
        flops.argtypes, flops.restype = [], ctypes.c_int64
    return loops
