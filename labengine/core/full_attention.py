"""Full attention: every token attends to all before it."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.kv_cache_group import GroupHit, KVCacheGroup
from labengine.core.request import Request


class FullAttentionGroup(KVCacheGroup):
    """Full attention: a hit is an unbroken run from the start, and nothing is dropped before the request ends."""

    has_every_shorter_hit = True

    def find_hit(self, request: Request, max_tokens: int, siblings: Sequence[KVCacheGroup]) -> GroupHit:
        """Return the run up to the first block that is not cached in every sibling."""
        return self._hit(request, max_tokens, siblings, num_dropped=0)

    def find_dropped_hit(self, request: Request, max_tokens: int, siblings: Sequence[KVCacheGroup]) -> GroupHit:
        """Return the run without its last block."""
        return self._hit(request, max_tokens, siblings, num_dropped=1)

    def _hit(self, request: Request, max_tokens: int, siblings: Sequence[KVCacheGroup], num_dropped: int) -> GroupHit:
        runs = [group.cached_run(request, max_tokens // self.block_size) for group in siblings]
        length = max(0, min(map(len, runs)) - num_dropped)
        length -= length % self._aligned_every
        for run in runs:
            del run[length:]
        return runs
