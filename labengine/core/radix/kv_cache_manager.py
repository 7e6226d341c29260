"""The manager of a prefix tree: what a request leaves in the tree, and when."""

from __future__ import annotations

from typing import Any

from labengine.core.kv_cache_manager import KVCacheManager, Moment
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.events import FreeReason


class RadixKVCacheManager(KVCacheManager):
    """Inserts a request's blocks into the tree when its prefill ends, and when it ends itself; not while it decodes."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.prefill_ends: dict[int, int] = {}
        """Per request with blocks: how many tokens its prefill computes, after a preemption generated ones too."""

    def admit(self, request: Request, hit: Hit, num_tokens: int, num_external: int = 0, *, num_spare: int = 0) -> bool:
        """Give a new request its hit blocks, and note where its prefill ends."""
        if not super().admit(request, hit, num_tokens, num_external, num_spare=num_spare):
            return False
        self._journal.put(self.prefill_ends, request.request_id, request.num_tokens)
        return True

    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: Moment) -> int:
        """Return all tokens of a prefill at its end, and all computed ones at the request's end; else 0."""
        if moment == "finished":
            return num_tokens
        return num_tokens if moment == "computed" and num_tokens == self.prefill_ends[request.request_id] else 0

    def free(self, request: Request, reason: FreeReason) -> None:
        """Leave the blocks of a request that ends in the tree; then give back all its references."""
        if reason in ("finished", "aborted") and request.has_blocks:
            self.register(request, request.num_computed_tokens, "finished")
        super().free(request, reason)
        if request.request_id in self.prefill_ends:
            self._journal.put(self.prefill_ends, request.request_id, None)

    def reset_prefix_cache(self) -> bool:
        """Empty the tree too; return False, and change nothing, while a request holds blocks."""
        if self.pool.num_free == self.pool.num_usable:
            self.pool.evict_cached(range(len(self.pool.blocks)), "reset")
        return super().reset_prefix_cache()
