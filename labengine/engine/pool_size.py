"""How many blocks fit: a number that was asked for is checked, "auto" is worked out from free memory."""

from __future__ import annotations

import psutil
import torch

from labengine.config import MAX_NUM_BLOCKS, ConfigError

SHARE_OF_A_CPU = 0.5
"""Of the memory that is free: a notebook has other things to keep."""
LEFT_FREE_ON_A_GPU = 0.1
"""Of all its memory: for activations, graphs and libraries."""
MAX_SLOTS = 2**31 - 1
"""Slots are numbered by int32."""


def free_memory(device: torch.device) -> int:
    """Bytes that can still be allocated on `device` without swapping."""
    if device.type == "cuda":
        free: int = torch.cuda.mem_get_info(device)[0]
        return free
    return int(psutil.virtual_memory().available)


def require_memory(num_blocks: int, block_size: int, block_bytes: int, device: torch.device) -> None:
    """Raise ConfigError when a pool of blocks of `block_bytes` does not fit; the message says how many would."""
    if num_blocks * block_size > MAX_SLOTS:
        raise ConfigError(
            f"num_blocks={num_blocks} of {block_size} tokens are more than {MAX_SLOTS:,} slots; at most "
            f"{MAX_SLOTS // block_size} blocks can be numbered"
        )
    free = free_memory(device)
    if num_blocks * block_bytes > free:
        raise ConfigError(
            f"num_blocks={num_blocks} needs {num_blocks * block_bytes / 2**30:,.1f} GiB for the KV pool, but {device} "
            f"has {free / 2**30:,.1f} GiB free; at most {free // block_bytes} blocks fit"
        )


def fitting_blocks(block_size: int, block_bytes: int, device: torch.device, enough: int) -> tuple[int, str]:
    """The blocks that "auto" means, and why so many. Ask when the weights are loaded; ConfigError when none fits.

    enough: on a CPU, no more than that, since whatever the pool has is taken from the notebook.
    """
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        num_bytes = free - LEFT_FREE_ON_A_GPU * total
        num_blocks, reason = int(num_bytes / block_bytes), f"all of {device} but {LEFT_FREE_ON_A_GPU:.0%}"
    else:
        fitting = int(free_memory(device) * SHARE_OF_A_CPU / block_bytes)
        num_blocks, reason = min(fitting, enough), "what max_num_seqs requests of full length need"
        if fitting < enough:
            reason = f"{SHARE_OF_A_CPU:.0%} of free memory"
    num_blocks = min(num_blocks, MAX_NUM_BLOCKS, MAX_SLOTS // block_size)
    if num_blocks < 1:
        raise ConfigError(f"not one block of {block_bytes / 2**20:,.1f} MiB fits into what {device} has free")
    return num_blocks, f"auto: {reason}"
