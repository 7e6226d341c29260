"""The GPU's measured limits: bytes copied and bf16 multiplications per second."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch

CUDA = torch.device("cuda")


def seconds_of(work: Callable[[], object], device: torch.device = CUDA, rounds: int = 15) -> list[float]:
    """Return the seconds of each round after three warm-ups, by the GPU's clock; without a GPU by the host's."""
    for _ in range(3):
        work()
    return [_seconds(work, device) for _ in range(rounds)]


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    if device.type != "cuda":
        before = perf_counter()
        work()
        return perf_counter() - before
    started, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    started.record()
    work()
    ended.record()
    ended.synchronize()
    return started.elapsed_time(ended) / 1000


def copied_bytes_per_second(num_bytes: int = 2**31, device: torch.device = CUDA) -> float:
    """Measure a copy; read and written bytes both count."""
    source, target = (torch.empty(num_bytes, dtype=torch.uint8, device=device) for _ in range(2))
    return 2 * num_bytes / median(seconds_of(lambda: target.copy_(source), device))


def matmul_flops_per_second(size: int = 8192, device: torch.device = CUDA) -> float:
    """Measure the product of square random bfloat16 matrices."""
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    return 2 * size**3 / median(seconds_of(lambda: a @ b, device))


def gpu_facts() -> dict[str, str | float]:
    """Return the facts printed above the tables."""
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
    return {
        "gpu": torch.cuda.get_device_name(),
        "memory_gib": round(torch.cuda.mem_get_info()[1] / 2**30, 1),
        "torch": torch.__version__,
        "copied_bytes_per_second": copied_bytes_per_second(),
        "matmul_flops_per_second": matmul_flops_per_second(),
    }


if __name__ == "__main__":
    import json

    print(json.dumps(gpu_facts()))
