"""Memory in huge pages, returned to the system with its last tensor; malloc may keep freed memory."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from contextlib import suppress
from math import prod

import torch
from torch import Tensor

LARGE = 2**18
"""Minimum bytes of a tensor that gets a separate mapping."""
MAPPING_BYTES = 64 * 2**20
CACHE_LINE = 64


def mapped_bytes(num_bytes: int) -> Tensor:
    """Return zeros in huge pages; fewer page look-ups make reading a few percent faster.

    Untouched pages take no memory. Raises MemoryError if the system has too few bytes left.
    """
    if not hasattr(mmap, "MAP_ANONYMOUS"):  # Windows
        return torch.zeros(num_bytes, dtype=torch.uint8, device="cpu")
    try:
        memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(
            f"the system has less than {num_bytes / 2**20:,.0f} MiB left ({error}); close other labs and programs, "
            "or choose a smaller model, fewer blocks or dtype='bfloat16'"
        ) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a Linux that was built without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)


def mapped_zeros(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return zeros on the CPU; a large tensor's memory is returned to the system with its last reference."""
    num_bytes = prod(shape) * dtype.itemsize
    if num_bytes < LARGE:
        return torch.zeros(*shape, dtype=dtype, device="cpu")
    return mapped_bytes(num_bytes).view(dtype).view(*shape)


class MappedMemory:
    """Allocates uninitialized tensors side by side in large mappings, which have room for many huge pages.

    A mapping is freed with this object and its last tensor.
    """

    def __init__(self) -> None:
        self._remaining = torch.empty(0, dtype=torch.uint8, device="cpu")

    def take(self, num_elements: int, dtype: torch.dtype) -> Tensor:
        """Return [num_elements], aligned to a cache line."""
        num_bytes = num_elements * dtype.itemsize
        padded_bytes = -(-num_bytes // CACHE_LINE) * CACHE_LINE
        if padded_bytes > self._remaining.numel():
            self._remaining = mapped_bytes(max(padded_bytes, MAPPING_BYTES))
        taken, self._remaining = self._remaining[:num_bytes], self._remaining[padded_bytes:]
        return taken.view(dtype)


class ReusedMemory:
    """Memory for tensors of which only the newest is in use. New memory for each would cost page faults."""

    def __init__(self) -> None:
        self._bytes = torch.empty(0, dtype=torch.uint8, device="cpu")

    def take(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return a tensor that the next one may overwrite."""
        num_bytes = prod(shape) * dtype.itemsize
        if num_bytes > self._bytes.numel():
            self._bytes = mapped_bytes(num_bytes)
        return self._bytes[:num_bytes].view(dtype).view(*shape)
