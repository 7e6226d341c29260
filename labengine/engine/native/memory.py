"""Memory for what every step reads from front to back: in huge pages, where the system gives them."""

from __future__ import annotations

import mmap

import torch
from torch import Tensor

MAPPING_BYTES = 64 * 2**20
CACHE_LINE = 64


class PackedMemory:
    """Hands out uninitialized tensors, side by side in large mappings. A mapping goes with its last tensor and this."""

    def __init__(self) -> None:
        self._rest = torch.empty(0, dtype=torch.uint8, device="cpu")

    def take(self, num_elements: int, dtype: torch.dtype) -> Tensor:
        """[num_elements], beginning with a cache line."""
        num_bytes = num_elements * dtype.itemsize
        whole_lines = -(-num_bytes // CACHE_LINE) * CACHE_LINE
        if whole_lines > self._rest.numel():
            self._rest = _mapping(max(whole_lines, MAPPING_BYTES))
        taken, self._rest = self._rest[:num_bytes], self._rest[whole_lines:]
        return taken.view(dtype)


def _mapping(num_bytes: int) -> Tensor:
    """Fewer pages are looked up, so reading is some percent faster. What is never touched takes no memory."""
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)
