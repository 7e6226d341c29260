"""Full attention of nano-vLLM in July 2025: a look-up compares only a block's own tokens."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.block import Block
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.nano_vllm.block_pool import StaleMapPool
from labengine.core.request import Request
from labengine.events import BlockCached


class OwnTokensGroup(FullAttentionGroup):
    """Full attention that hits any block in the map whose own tokens are equal, whatever their prefix."""

    _pool: StaleMapPool

    def cached_run(self, request: Request, num_blocks: int) -> list[int]:
        """Return the blocks that the map serves one after the other, stale entries included."""
        run: list[int] = []
        for index in range(num_blocks):
            block_id = self.cached_block(request, index)
            if block_id is None:
                break
            run.append(block_id)
        return run

    def cached_block(self, request: Request, index: int) -> int | None:
        """Return the served block, even from a stale entry, if the block's own tokens are equal."""
        block_id = self._pool.stale.get((self.index, self.block_hashes(request, index, index + 1)[0]))
        if block_id is None:
            return super().cached_block(request, index)
        block = self._pool.blocks[block_id]
        return block_id if self._merge_policy.is_equal(block, request, self._link(index)) else None

    def add_hit(self, request: Request, hit: Sequence[int], num_computed_tokens: int) -> None:
        """Add the hit, and register each block under the request's hash."""
        super().add_hit(request, hit, num_computed_tokens)
        for index, block_id in enumerate(hit):
            self._register_again(request, index, self._pool.blocks[block_id])

    def _register_again(self, request: Request, index: int, block: Block) -> None:
        link, table_entry = self._link(index), (block.block_id, request.request_id, self.index, index)
        key = (self.index, self.block_hashes(request, index, index + 1)[0])
        token_ids, mapped = block.token_ids, (block.block_id,)
        if block.keys == (key,):
            return
        self._pool.evict(block, "replaced")
        self._pool.register(block, key, token_ids, request.prefix_at(link), mapped)
        if BlockCached in self._hooks:
            self._hooks.emit(BlockCached(*table_entry, key[1], mapped))

    def _link(self, index: int) -> int:
        """Return the link of the hash chain that a block ends with."""
        return (index + 1) * self._hash_ratio - 1
