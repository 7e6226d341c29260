"""SGLang's manager: chunks enter the tree, aborted prefills do not, and paged blocks are reused last in, first out."""

from __future__ import annotations

from typing import Any, cast

from labengine.core.kv_cache_manager import Moment
from labengine.core.radix.block_pool import RadixBlockPool
from labengine.core.radix.kv_cache_manager import RadixKVCacheManager
from labengine.core.request import Request
from labengine.events import FreeReason


class SglangKVCacheManager(RadixKVCacheManager):
    """Inserts a request's blocks after each chunk of its prefill, and when it ends.

    With blocks of one token, freed blocks go to the tail of the free queue; with larger ones, to its head. Source:
    TokenToKVPoolAllocator and PagedTokenToKVPoolAllocator.
    """

    drops_unregistered = ("preempted", "aborted")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.kept: dict[int, bool] = {}
        """Requests that end, and whose blocks are inserted already."""
        if self.group.block_size > 1:
            cast(RadixBlockPool, self.pool).freed_go_to = "head"

    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: Moment) -> int:
        """Return 0 also for a request that ends in the middle of its prefill."""
        if moment == "finished" and num_tokens < self.prefill_ends.get(request.request_id, 0):
            return 0
        return super().num_registrable_tokens(request, num_tokens, moment)

    def keep(self, request: Request) -> None:
        """Insert the blocks of a request that ends, once: the scheduler keeps it at its turn in the batch."""
        if request.request_id not in self.kept:
            super().keep(request)
            self._journal.put(self.kept, request.request_id, True)

    def free(self, request: Request, reason: FreeReason) -> None:
        """Give back a request's references, and forget that it was kept."""
        super().free(request, reason)
        if request.request_id in self.kept:
            self._journal.put(self.kept, request.request_id, None)

    def refresh_prefix(self, request: Request) -> None:
        """Make the cached prefix of a waiting request the youngest, so that it is still there at its admission."""
        self.extend_hashes(request, request.num_tokens)
        self.group.tree.match(request, request.num_tokens // self.group.block_size)
