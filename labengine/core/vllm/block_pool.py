"""vLLM's pool."""

from __future__ import annotations

from labengine.core.block_pool import BlockPool


class VllmBlockPool(BlockPool):
    """A pool that pads tables with block 0."""

    null_block = 0
