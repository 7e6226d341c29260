"""Full attention: every token attends to all before it."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.kv_cache_group import GroupHit, KVCacheGroup
from labengine.core.request import Request
from labengine.events import BlockCached


class FullAttentionGroup(KVCacheGroup):
    """Full attention: a hit is an unbroken run from the start, and nothing is dropped before the request ends."""

    has_every_shorter_hit = True

    def find_hit(self, request: Request, max_tokens: int, siblings: Sequence[KVCacheGroup]) -> GroupHit:
        """Return the run up to the first block that is not cached in every sibling.

        Each token attends to all before it.
        """
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


class PromptTailGroup(FullAttentionGroup):
    """Also registers where a prompt ends inside a block larger than a link of the hash chain, as vLLM does.

    Only hits finer than a block find the key, and they need a kind of group (Mamba) that does not exist here. The key
    still marks the block as cached, and so decides where the block goes when it is freed.
    """

    def register(self, request: Request, num_tokens: int) -> None:
        """Register full blocks, then the prompt's tail."""
        super().register(request, num_tokens)
        link_size = self._config.hash_block_size
        # A hit leaves the last token to compute; one that drops what it found last looks at all of them.
        end = (request.num_prompt_tokens - (not self.drops_last_block)) // link_size * link_size
        index = end // self.block_size
        if 0 < end <= num_tokens and end % self.block_size and index < len(request.block_tables[self.index]):
            self.register_tail(request, index, end // link_size - 1)

    def register_tail(self, request: Request, index: int, link: int) -> None:
        """Register a block that a prompt fills up to this link: it counts as cached, and is freed to the tail."""
        block = self._pool.blocks[request.block_tables[self.index][index]]
        key = (self.index, request.block_hashes[link])  # of a link inside the block, which ends no block
        if key in block.keys:
            return
        if block.prefix is not None and block.prefix.num_links <= link:
            self._pool.evict(block, "replaced")
        mapped = self._merge_policy.mapped_after(self._pool.prefix_map.get(key, ()), block.block_id)
        self._pool.register(block, key, block.token_ids, request.prefix_at(link), mapped)
        if BlockCached in self._hooks:
            event = BlockCached(block.block_id, request.request_id, self.index, index, key[1], mapped, is_full=False)
            self._hooks.emit(event)
