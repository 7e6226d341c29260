"""Decisions of nano-vLLM that differ from the production classes."""

from __future__ import annotations

from labengine.core.block_pool import BlockPool
from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.request import Request
from labengine.core.step_plan import SlotRun


class NanoBlockPool(BlockPool):
    """nano-vLLM's pool: one order for all freed blocks."""

    def reused_first(self, block_ids: list[int]) -> list[int]:
        """Return no block: every freed block goes to the tail, with or without content."""
        return []


class NanoKVCacheManager(KVCacheManager):
    """nano-vLLM's manager: the decode slot is in the last block."""

    def slot_runs(self, request: Request, start: int, end: int, group: KVCacheGroup) -> tuple[SlotRun, ...]:
        """Put a decoded token into the table's last block, at the offset of the request's last token."""
        if end - start == 1 and end == request.num_tokens and request.num_generated_tokens:
            return ((request.block_tables[group.index][-1], (request.num_tokens - 1) % group.block_size, 1),)
        return super().slot_runs(request, start, end, group)
