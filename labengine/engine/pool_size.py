"""The pool's size: check a given number of blocks, or compute "auto" from free memory."""

from __future__ import annotations

from pathlib import Path

import psutil
import torch

from labengine.config import MAX_NUM_BLOCKS, ConfigError

SHARE_OF_A_CPU = 0.5
"""Share of the free memory; a notebook needs the rest for other things."""
SHARE_OF_A_GPU = 0.5
"""Share of the free memory for a lab's pool and its steps; a fork needs as much again."""
LEFT_FREE_ON_A_GPU = 0.02
"""Share of all memory left for other programs and fragmentation."""
MARGIN_OF_STEPS = 1.1
"""Memory left for steps, relative to the largest step of a trial."""
MAX_SLOTS = 2**31 - 1
"""Slots are numbered by int32."""

CGROUPS = Path("/sys/fs/cgroup")
"""Linux's limits for a container."""
CGROUP_FILES = (
    ("memory.max", "memory.current", "memory.stat", ""),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_"),
)
"""Versions 2 and 1: files of limit, usage and statistics, and the prefix of statistics over the whole hierarchy."""


def free_memory(device: torch.device) -> int:
    """Return the bytes that can be allocated on `device` without swapping or leaving the container's limit."""
    if device.type == "cuda":
        free: int = torch.cuda.mem_get_info(device)[0]
        return free + _kept_by_torch(device)
    available, left = int(psutil.virtual_memory().available), left_to_cgroup(CGROUPS)
    return available if left is None else min(available, left)


def left_to_cgroup(folder: Path) -> int | None:
    """Return the bytes until this container's limit, at least 0; None if `folder` has no limit.

    Usage includes cached pages of files such as the weights; the system drops them when memory is needed.
    """
    for limit_file, usage_file, statistics_file, prefix in CGROUP_FILES:
        limit, usage = _number_in(folder / limit_file), _number_in(folder / usage_file)
        if limit is not None and usage is not None:
            return max(0, limit - usage + min(usage, _file_pages(folder / statistics_file, prefix)))
    return None


def _number_in(file: Path) -> int | None:
    """Return the number in a file; None if the file is missing or holds "max"."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _file_pages(statistics: Path, prefix: str) -> int:
    """Return the bytes of cached files; 0 if unknown."""
    try:
        lines = [line.split() for line in statistics.read_text().splitlines()]
    except OSError:
        return 0
    names = (f"{prefix}active_file", f"{prefix}inactive_file")
    return sum(int(words[1]) for words in lines if len(words) == 2 and words[0] in names and words[1].isdecimal())


def _kept_by_torch(device: torch.device) -> int:
    """Return the bytes that torch has reserved but does not use; it releases them on demand."""
    statistics = torch.cuda.memory_stats(device)
    reserved, active, remnants = (
        int(statistics.get(f"{name}_bytes.all.current", 0)) for name in ("reserved", "active", "inactive_split")
    )
    return max(0, reserved - active - remnants)


def require_memory(num_blocks: int, block_size: int, block_bytes: int, device: torch.device) -> None:
    """Raise ConfigError if a pool of blocks of `block_bytes` does not fit; the message gives the number that would."""
    if num_blocks * block_size > MAX_SLOTS:
        raise ConfigError(
            f"num_blocks={num_blocks} of {block_size} tokens exceeds {MAX_SLOTS:,} slots; at most "
            f"{MAX_SLOTS // block_size} blocks can be numbered"
        )
    free = free_memory(device)
    if num_blocks * block_bytes > free:
        raise ConfigError(
            f"num_blocks={num_blocks} needs {num_blocks * block_bytes / 2**30:,.1f} GiB for the KV pool, but {device} "
            f"has {free / 2**30:,.1f} GiB free; at most {free // block_bytes} blocks fit"
        )


def fitting_blocks(
    block_size: int, block_bytes: int, device: torch.device, enough: int, step_bytes: int = 0
) -> tuple[int, str]:
    """Return the number of blocks for "auto", and the reason. Call it after loading the weights.

    Raises ConfigError if not even one fits.
    enough: an upper limit on a CPU, since the pool's memory is taken from the notebook. step_bytes: on a GPU, the
    memory that the largest steps need beside weights and pool.
    """
    if device.type == "cuda":
        free = free_memory(device) - LEFT_FREE_ON_A_GPU * torch.cuda.mem_get_info(device)[1]
        num_blocks = int((SHARE_OF_A_GPU * free - MARGIN_OF_STEPS * step_bytes) / block_bytes)
        reason = f"half of {device}, to leave room for a fork; {step_bytes / 2**30:,.1f} GiB of it for the largest step"
    else:
        fitting = int(free_memory(device) * SHARE_OF_A_CPU / block_bytes)
        num_blocks, reason = min(fitting, enough), "as many as max_num_seqs full-length requests need"
        if fitting < enough:
            reason = f"{SHARE_OF_A_CPU:.0%} of free memory"
    num_blocks = min(num_blocks, MAX_NUM_BLOCKS, MAX_SLOTS // block_size)
    if num_blocks < 1:
        raise ConfigError(f"not one block of {block_bytes / 2**20:,.1f} MiB fits into the free memory of {device}")
    return num_blocks, f"auto: {reason}"


def trial_blocks(block_size: int, block_bytes: int, device: torch.device, max_model_len: int) -> int:
    """Return the number of blocks of a trial pool: enough for the longest request, at most a quarter of free memory.

    The tables of graphs are as wide as the longest request that fits.
    """
    return max(1, min(-(-max_model_len // block_size), free_memory(device) // 4 // block_bytes))
