"""The pools of nano-vLLM: one order for all freed blocks, and in July 2025 a map that never forgets."""

from __future__ import annotations

from labengine.core.block import Block, Key, Prefix
from labengine.core.block_pool import BlockPool
from labengine.core.free_queue import FreeQueue
from labengine.core.journal import Journal
from labengine.events import EvictReason
from labengine.record.hooks import Hooks


class NanoBlockPool(BlockPool):
    """nano-vLLM's pool: one order for all freed blocks."""

    def reused_first(self, block_ids: list[int]) -> list[int]:
        """Return no block: every freed block goes to the tail, with or without content."""
        return []


class StaleMapPool(NanoBlockPool):
    """A pool whose map entries outlive the content: `stale` holds those whose block now has other content."""

    def __init__(self, num_blocks: int, free_queue: FreeQueue, hooks: Hooks, journal: Journal) -> None:
        super().__init__(num_blocks, free_queue, hooks, journal)
        self.stale: dict[Key, int] = {}

    def register(
        self, block: Block, key: Key, token_ids: tuple[int, ...], prefix: Prefix, mapped: tuple[int, ...]
    ) -> None:
        """Register the block; a new entry replaces a stale one."""
        if key in self.stale:
            self._journal.record((self.stale.__setitem__, key, self.stale.pop(key)))
        super().register(block, key, token_ids, prefix, mapped)

    def evict(self, block: Block, reason: EvictReason = "reused") -> None:
        """Forget the block's content, but keep the map's entry."""
        for key in block.keys:
            if self.prefix_map.get(key) == (block.block_id,):
                self._journal.record((self.stale.__delitem__, key))
                self.stale[key] = block.block_id
        super().evict(block, reason)
