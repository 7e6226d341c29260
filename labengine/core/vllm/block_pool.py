"""vLLM's pool."""

from __future__ import annotations

from labengine.core.block_pool import BlockPool


class VllmBlockPool(BlockPool):
    """vLLM pads tables with block 0."""

    null_block = 0
