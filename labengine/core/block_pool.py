"""The block pool: every physical block, who is free, and what is cached. All changes to blocks happen here."""

from __future__ import annotations

from collections.abc import Iterable

from labengine.core.block import Block, Key
from labengine.core.free_queue import FreeQueue
from labengine.core.journal import Journal
from labengine.core.prefix_cache import PrefixMap
from labengine.events import BlockEvicted, QueueEnd
from labengine.hooks import Hooks


class BlockPool:
    """num_blocks blocks shared by all KV-cache groups; a block is free exactly when its ref_count is 0."""

    def __init__(self, num_blocks: int, hooks: Hooks, journal: Journal) -> None:
        self.blocks = [Block(block_id) for block_id in range(num_blocks)]
        self.free_queue = FreeQueue(num_blocks)
        self.prefix_map = PrefixMap(journal)
        self._hooks = hooks
        self._journal = journal

    @property
    def num_free(self) -> int:
        """Blocks that can be taken, cached ones included."""
        return len(self.free_queue)

    def take(self, num_blocks: int) -> list[int]:
        """Take blocks off the head of the free queue, with ref_count 1 and their cached content forgotten."""
        block_ids = self.free_queue.take(num_blocks)
        self._journal.record(self._put_back, block_ids)
        for block_id in block_ids:
            block = self.blocks[block_id]
            block.ref_count = 1
            if block.keys:
                self.evict(block)
        return block_ids

    def touch(self, block_id: int) -> int:
        """One more reference to a cached block; a free one leaves the queue. Returns its ref_count."""
        block = self.blocks[block_id]
        before = self.free_queue.remove(block_id) if block.ref_count == 0 else None
        self._journal.record(self._untouch, block, before)
        block.ref_count += 1
        return block.ref_count

    def release(self, block_id: int) -> tuple[int, QueueEnd | None]:
        """One reference fewer. Returns the ref_count and, when it is 0, the end of the queue the block went to."""
        block = self.blocks[block_id]
        if block.ref_count == 0:
            raise RuntimeError(f"block {block_id} is freed twice: its ref_count is 0")
        end = self.queue_end(block) if block.ref_count == 1 else None
        if end == "head":
            self.free_queue.prepend(block_id)
        elif end == "tail":
            self.free_queue.append(block_id)
        self._journal.record(self._unrelease, block)
        block.ref_count -= 1
        return block.ref_count, end

    def queue_end(self, block: Block) -> QueueEnd:
        """Blocks without cached content are reused first, so that they never outlive a warm block (vLLM PR 42656)."""
        return "tail" if block.keys else "head"

    def register(
        self, block_id: int, key: Key, token_ids: tuple[int, ...], parent_hash: bytes, mapped: tuple[int, ...]
    ) -> None:
        """Note what a full block holds, and what the map serves under its key from now on."""
        block = self.blocks[block_id]
        self._set_content(block, (*block.keys, key), token_ids, parent_hash)
        self.prefix_map.set(key, mapped)

    def evict(self, block: Block) -> None:
        """Forget a block's content: its keys, and the map entries that lead to it."""
        for key in block.keys:
            mapped = self.prefix_map.get(key)
            if block.block_id in mapped:
                self.prefix_map.set(key, tuple(i for i in mapped if i != block.block_id))
        self._set_content(block, (), (), b"")
        if BlockEvicted in self._hooks:
            self._hooks.emit(BlockEvicted(block.block_id))

    def evict_cached(self, block_ids: Iterable[int]) -> None:
        """Forget those of the blocks that are cached: their slots can no longer be trusted."""
        for block_id in block_ids:
            if self.blocks[block_id].keys:
                self.evict(self.blocks[block_id])

    def _set_content(self, block: Block, keys: tuple[Key, ...], token_ids: tuple[int, ...], parent_hash: bytes) -> None:
        self._journal.record(_restore_content, block, block.keys, block.token_ids, block.parent_hash)
        _restore_content(block, keys, token_ids, parent_hash)

    # -- inverses ------------------------------------------------------------------------------------------------------

    def _put_back(self, block_ids: list[int]) -> None:
        for block_id in block_ids:
            self.blocks[block_id].ref_count = 0
        self.free_queue.put_back(block_ids)

    def _untouch(self, block: Block, before: int | None) -> None:
        block.ref_count -= 1
        if before is not None:
            self.free_queue.insert_after(before, block.block_id)

    def _unrelease(self, block: Block) -> None:
        if block.ref_count == 0:
            self.free_queue.remove(block.block_id)
        block.ref_count += 1


def _restore_content(block: Block, keys: tuple[Key, ...], token_ids: tuple[int, ...], parent_hash: bytes) -> None:
    block.keys, block.token_ids, block.parent_hash = keys, token_ids, parent_hash
