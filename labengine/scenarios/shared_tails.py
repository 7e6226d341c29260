"""Prefix hits that end inside a block and share the last block of another request or of the cache without a copy."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.core.vllm.full_attention import PromptTailGroup
from labengine.core.vllm.kv_cache_manager import VllmKVCacheManager


class SharesTailsGroup(PromptTailGroup):
    """Treats every block of a hit as full: none is copied before the request writes after its hit."""

    def ends_inside(self, hit: Sequence[int], num_computed_tokens: int) -> bool:
        """Return False, even if the hit ends inside a block."""
        return False


class SharesTailsKVCacheManager(VllmKVCacheManager):
    """Finds prompts that ended inside a block. It has one group, and a hash-chain link shorter than a block.

    vLLM also registers such ends, but full attention does not look for them.
    """

    def find_prefix(self, request: Request) -> Hit:
        """Return the longest hit of full blocks, followed by a block that begins with the request's next tokens."""
        hit, link = super().find_prefix(request), self._config.hash_block_size
        if len(self.groups) > 1:
            return hit
        longest = min(hit.num_tokens + self.groups[0].block_size, request.num_tokens - 1) // link * link
        for end in range(longest, hit.num_tokens, -link):
            if mapped := self.pool.prefix_map.get((0, request.block_hashes[end // link - 1])):
                return Hit(end, ((*hit.block_ids[0], mapped[0]),))
        return hit


SHARES_TAILS = Parts(kv_cache_manager=SharesTailsKVCacheManager, full_attention_group=SharesTailsGroup)
