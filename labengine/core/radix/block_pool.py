"""The pool of a prefix tree: cached blocks are not free, so it evicts them when it lacks free ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from labengine.core.block_pool import BlockPool, FreedTwiceError
from labengine.core.part_methods import class_name, definers
from labengine.core.radix.prefix_tree import PrefixTree
from labengine.events import EvictReason, QueueEnd

_EVICTING = ("evict", "next_leaf", "remove")


class RadixBlockPool(BlockPool):
    """A block is free, cached in the tree, or held by tables alone; a free block has no content."""

    tree: PrefixTree

    freed_go_to: QueueEnd = "tail"
    """Where freed and evicted blocks enter the free queue."""

    @property
    def num_free(self) -> int:
        """Blocks that can be taken: free ones, and those of nodes without locks."""
        return len(self.free_queue) + self.tree.num_evictable

    @property
    def num_used(self) -> int:
        """Blocks held by at least one request: neither free nor kept by the tree alone."""
        return super().num_used - self.tree.num_evictable

    def take(self, num_blocks: int) -> list[int]:
        """Take blocks from the head of the free queue, evicting from the tree exactly as long as some are missing.

        Raises RuntimeError if the tree gives back too few of the blocks that it counts as evictable.
        """
        missing = num_blocks - len(self.free_queue)
        self.make_room(num_blocks)
        if num_blocks > len(self.free_queue):
            methods = " or ".join(f"{class_name(definers(type(self.tree), name)[0])}.{name}" for name in _EVICTING)
            raise RuntimeError(f"{missing} blocks of the tree were to be evicted, but {methods} gave back fewer")
        return super().take(num_blocks)

    def make_room(self, num_blocks: int) -> None:
        """Evict from the tree until num_blocks blocks are free, or nothing can be evicted."""
        if (missing := num_blocks - len(self.free_queue)) > 0:
            self.tree.evict(missing)

    def reused_first(self, block_ids: list[int]) -> list[int]:
        """Return all freed blocks or none, because a free block has no content that would be worth keeping."""
        return block_ids if self.freed_go_to == "head" else []

    def reclaim(self, block_ids: Sequence[int], reason: EvictReason) -> QueueEnd | None:
        """Take back the blocks of a node that left the tree; return the end of the queue at which they are now.

        Only locks protect a node's blocks from reuse: without any, they become free even if a table still names them.
        For other reasons they just lose the tree's reference. Raises FreedTwiceError, before anything changes, for a
        block that is free already.
        """
        before = [self.blocks[block_id].ref_count for block_id in block_ids]
        if 0 in before:
            raise FreedTwiceError(block_ids[before.index(0)])
        self._journal.record((self._unreclaim, block_ids, before))
        self.num_losses += 1
        for block_id, ref_count in zip(block_ids, before, strict=True):
            self.blocks[block_id].ref_count = 0 if reason == "reused" else ref_count - 1
        freed = [block_id for block_id in block_ids if not self.blocks[block_id].ref_count]
        (self.free_queue.append if self.freed_go_to == "tail" else self.free_queue.prepend)(freed)
        return self.freed_go_to if freed else None

    def evict_cached(self, block_ids: Iterable[int], reason: EvictReason) -> None:
        """Forget the content of the cached ones among these blocks, and all that depends on it."""
        for block_id in block_ids:
            if block_id in self.tree.node_of:
                self.tree.forget(block_id, reason)
            else:
                super().evict_cached((block_id,), reason)

    def num_pins(self, block_id: int) -> int:
        """Return the references to a block that no table holds: the tree's."""
        return int(block_id in self.tree.node_of)

    def _unreclaim(self, block_ids: Sequence[int], ref_counts: Sequence[int]) -> None:
        for block_id, ref_count in zip(block_ids, ref_counts, strict=True):
            self.blocks[block_id].ref_count = ref_count
            if block_id in self.free_queue:
                self.free_queue.remove(block_id)
