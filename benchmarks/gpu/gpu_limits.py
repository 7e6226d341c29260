"""What the GPU itself can do, measured: bytes copied and bf16 multiplications per second."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import torch


def seconds_of(work: Callable[[], object], rounds: int = 15) -> float:
    """Median by the GPU's own clock, after three warm-ups."""
    for _ in range(3):
        work()
    times = []
    for _ in range(rounds):
        started, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        started.record()
        work()
        ended.record()
        ended.synchronize()
        times.append(started.elapsed_time(ended) / 1000)
    return median(times)


def copied_bytes_per_second(num_bytes: int = 2**31) -> float:
    """Read and written bytes, both counted."""
    source, target = (torch.empty(num_bytes, dtype=torch.uint8, device="cuda") for _ in range(2))
    return 2 * num_bytes / seconds_of(lambda: target.copy_(source))


def matmul_flops_per_second(size: int = 8192) -> float:
    """Square matrices of random bfloat16."""
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * size**3 / seconds_of(lambda: a @ b)


def gpu_facts() -> dict[str, str | float]:
    """What stands above the tables."""
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
