"""Prefix hits that end inside a block: the last block of another request, or of the cache, is taken as it is."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.core.vllm.full_attention import PromptTailGroup
from labengine.core.vllm.kv_cache_manager import VllmKVCacheManager


class SharesTailsGroup(PromptTailGroup):
    """Takes every block of a hit as a full one: none is copied before the request writes behind its hit."""

    def ends_inside(self, hit: Sequence[int], num_computed_tokens: int) -> bool:
        """Return False, also where the hit ends inside a block."""
        return False


class SharesTailsKVCacheManager(VllmKVCacheManager):
    """Finds where a prompt ended inside a block. (One group; a link of the hash chain is shorter than a block.)

    vLLM registers such ends as well, and full attention does not look for them.
    """

    def find_prefix(self, request: Request) -> Hit:
        """Return the longest hit of full blocks, and behind it a block that begins with the request's next tokens."""
        hit, link = super().find_prefix(request), self._config.hash_block_size
        if len(self.groups) > 1:
            return hit
        longest = min(hit.num_tokens + self.groups[0].block_size, request.num_tokens - 1) // link * link
        for end in range(longest, hit.num_tokens, -link):
            if mapped := self.pool.prefix_map.get((0, request.block_hashes[end // link - 1])):
                return Hit(end, ((*hit.block_ids[0], mapped[0]),))
        return hit


SHARES_TAILS = Parts(kv_cache_manager=SharesTailsKVCacheManager, full_attention_group=SharesTailsGroup)
