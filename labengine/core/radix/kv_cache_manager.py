"""The manager of a prefix tree: what a request leaves in the tree, and when."""

from __future__ import annotations

from typing import Any, cast

from labengine.core.kv_cache_manager import KVCacheManager, Moment
from labengine.core.prefix_lookup import Hit
from labengine.core.radix.block_pool import RadixBlockPool
from labengine.core.request import Request
from labengine.events import FreeReason, PrefixCacheReset


class RadixKVCacheManager(KVCacheManager):
    """Inserts a request's blocks into the tree when its prefill ends, and when it ends itself; not while it decodes."""

    drops_unregistered: tuple[FreeReason, ...] = ("preempted",)

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
        """Return the computed tokens of a prefill, and all computed ones at the request's end; 0 in between."""
        if moment == "finished":
            return num_tokens
        return num_tokens if moment == "computed" and num_tokens <= self.prefill_ends[request.request_id] else 0

    def keep(self, request: Request) -> None:
        """Leave the blocks of a request that ends in the tree. A second call has no effect."""
        if request.request_id in self.prefill_ends:
            self.register(request, request.num_computed_tokens, "finished")
            self._journal.put(self.prefill_ends, request.request_id, None)

    def free(self, request: Request, reason: FreeReason) -> None:
        """Leave the blocks of a request that ends in the tree; then give back all its references."""
        if reason == "preempted":
            self._journal.put(self.prefill_ends, request.request_id, None)
        else:
            self.keep(request)
        super().free(request, reason)

    def reset_prefix_cache(self) -> bool:
        """Evict the whole tree; return False, and change nothing, while a request holds blocks."""
        pool = cast(RadixBlockPool, self.pool)
        tree = pool.tree
        if tree is None or pool.num_used > tree.num_evictable:
            return False
        while (leaf := tree.next_leaf()) is not None:
            tree.remove(leaf, "reset")
        if PrefixCacheReset in self._hooks:
            self._hooks.emit(PrefixCacheReset())
        return True
