"""The pool of a prefix tree: cached blocks are not free, so it evicts them when it lacks free ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from labengine.core.block_pool import BlockPool
from labengine.core.radix.prefix_tree import PrefixTree
from labengine.events import EvictReason, QueueEnd


class RadixBlockPool(BlockPool):
    """A block is free, cached in the tree, or held by tables alone; a free block has no content."""

    freed_go_to: QueueEnd = "tail"
    """Where freed and evicted blocks enter the free queue."""

    @property
    def num_free(self) -> int:
        """Blocks that can be taken: free ones, and those of nodes without locks."""
        return len(self.free_queue) + self._tree.num_evictable

    def take(self, num_blocks: int) -> list[int]:
        """Take blocks from the head of the free queue, evicting from the tree exactly as long as some are missing."""
        self.make_room(num_blocks)
        return super().take(num_blocks)

    def make_room(self, num_blocks: int) -> None:
        """Evict from the tree until num_blocks blocks are free, or nothing can be evicted."""
        if (missing := num_blocks - len(self.free_queue)) > 0:
            self._tree.evict(missing)

    def reused_first(self, block_ids: list[int]) -> list[int]:
        """Return all freed blocks or none, because a free block has no content that would be worth keeping."""
        return block_ids if self.freed_go_to == "head" else []

    def reclaim(self, block_ids: Sequence[int], *, is_read: bool) -> QueueEnd | None:
        """Take an evicted node's blocks back; return the end of the queue at which they are now.

        Only a node's locks protect its blocks: without any, they become free even if a table still names them. is_read:
        True for a locked node, whose blocks only lose the tree's reference.
        """
        if is_read:
            _, freed = self.release(block_ids)
            return "tail" if freed else None
        blocks, end = self.blocks, self.freed_go_to
        self._journal.record((self._unreclaim, block_ids, [blocks[block_id].ref_count for block_id in block_ids]))
        for block_id in block_ids:
            blocks[block_id].ref_count = 0
        self.num_losses += 1
        (self.free_queue.append if end == "tail" else self.free_queue.prepend)(block_ids)
        return end

    def evict_cached(self, block_ids: Iterable[int], reason: EvictReason) -> None:
        """Forget the content of the cached ones among these blocks, and all that depends on it."""
        for block_id in block_ids:
            if block_id in self._tree.node_of:
                self._tree.forget(block_id, reason)
            else:
                super().evict_cached((block_id,), reason)

    @property
    def _tree(self) -> PrefixTree:
        return cast(PrefixTree, self.tree)

    def _unreclaim(self, block_ids: Sequence[int], ref_counts: Sequence[int]) -> None:
        for block_id, ref_count in zip(block_ids, ref_counts, strict=True):
            self.blocks[block_id].ref_count = ref_count
            if block_id in self.free_queue:
                self.free_queue.remove(block_id)
