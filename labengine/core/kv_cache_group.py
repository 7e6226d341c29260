"""One KV-cache group: layers that share a block table, and the rule by which blocks are found, added and freed."""

from __future__ import annotations

from labengine.config import GroupSpec
from labengine.core.block_pool import BlockPool
from labengine.core.journal import Journal
from labengine.core.prefix_cache import MergePolicy
from labengine.core.request import Request
from labengine.events import BlockAllocated, BlockCached, BlockFreed, BlockMerged, BlockTouched, FreeReason
from labengine.hooks import Hooks


class KVCacheGroup:
    """Block tables of one group on the shared pool. Every change of a table goes through here, and is told by an event.

    hash_ratio: hashes of the request's chain per block (the chain is kept at the smallest block size of all groups).
    """

    def __init__(
        self,
        index: int,
        spec: GroupSpec,
        hash_ratio: int,
        pool: BlockPool,
        merge_policy: MergePolicy,
        hooks: Hooks,
        journal: Journal,
    ) -> None:
        self.index = index
        self.spec = spec
        self.block_size = spec.block_size
        self._hash_ratio = hash_ratio
        self._pool = pool
        self._merge_policy = merge_policy
        self._hooks = hooks
        self._journal = journal

    def find_hit(self, request: Request, max_tokens: int) -> tuple[int, ...]:
        """The cached blocks that hold the request's first tokens, at most max_tokens of them. Touches nothing."""
        raise NotImplementedError

    def num_missing_blocks(self, request: Request, num_tokens: int) -> int:
        """Blocks the table lacks to hold num_tokens tokens.

        At decode the token at position num_tokens - 1 was sampled, and its KV is written in this step: a block is
        missing when that position opens one (nano-vLLM PR 71 argues otherwise, and writes into the wrong block).
        """
        return -(-num_tokens // self.block_size) - len(request.block_tables[self.index])

    def add_hit(self, request: Request, block_ids: tuple[int, ...]) -> None:
        """Start the request's table with cached blocks, each touched so that nobody can take it."""
        table = request.block_tables[self.index]
        for block_id in block_ids:
            ref_count = self._pool.touch(block_id)
            self._append(table, block_id)
            if BlockTouched in self._hooks:
                self._hooks.emit(BlockTouched(block_id, request.request_id, self.index, len(table) - 1, ref_count))
        self._set_registered(request, len(block_ids))

    def extend(self, request: Request, num_tokens: int) -> None:
        """Allocate blocks until the table holds num_tokens tokens. The caller made sure that they are free."""
        missing = self.num_missing_blocks(request, num_tokens)
        if missing <= 0:
            return
        table = request.block_tables[self.index]
        for block_id in self._pool.take(missing):
            self._append(table, block_id)
            if BlockAllocated in self._hooks:
                self._hooks.emit(BlockAllocated(block_id, request.request_id, self.index, len(table) - 1))

    def register(self, request: Request, num_tokens: int) -> None:
        """Register the hashes of the request's blocks that its first num_tokens tokens fill, merging duplicates."""
        first, last = request.num_registered_blocks[self.index], num_tokens // self.block_size
        for index in range(first, last):
            self._register_block(request, index)
        if last > first:
            self._set_registered(request, last)

    def free(self, request: Request, reason: FreeReason) -> None:
        """Give the whole table back, its tail first: a chain's tail is useless without its head, so it goes first."""
        table = request.block_tables[self.index]
        while table:
            block_id = table[-1]
            self._journal.record(table.append, block_id)
            table.pop()
            self._release(block_id, request, len(table), reason)
        self._set_registered(request, 0)

    def block_hash(self, request: Request, index: int) -> bytes:
        """The hash of the request's full block `index`: the chain's hash at the block's end."""
        return request.block_hashes[(index + 1) * self._hash_ratio - 1]

    def _tokens(self, request: Request, index: int) -> tuple[int, ...]:
        return tuple(request.token_ids[index * self.block_size : (index + 1) * self.block_size])

    def _parent_hash(self, request: Request, index: int) -> bytes:
        return self.block_hash(request, index - 1) if index else b""

    def _register_block(self, request: Request, index: int) -> None:
        block_hash = self.block_hash(request, index)
        parent_hash = self._parent_hash(request, index)
        token_ids = self._tokens(request, index)
        key = (self.index, block_hash)
        block = self._pool.blocks[request.block_tables[self.index][index]]
        mapped = self._pool.prefix_map.get(key)
        if mapped:
            found = [self._pool.blocks[i] for i in mapped]
            target = self._merge_policy.merge_target(found, block, token_ids, parent_hash)
            if target is not None:
                self._merge(request, index, block.block_id, target.block_id)
                return
        mapped = self._merge_policy.mapped_after(mapped, block.block_id)
        self._pool.register(block.block_id, key, token_ids, parent_hash, mapped)
        if BlockCached in self._hooks:
            self._hooks.emit(BlockCached(block.block_id, request.request_id, self.index, index, block_hash, mapped))

    def _merge(self, request: Request, index: int, block_id: int, into_block_id: int) -> None:
        """Repoint the table before the copy is freed: freeing alone would leave it pointing at a reusable block."""
        ref_count = self._pool.touch(into_block_id)
        table = request.block_tables[self.index]
        self._journal.record(table.__setitem__, index, block_id)
        table[index] = into_block_id
        if BlockMerged in self._hooks:
            self._hooks.emit(BlockMerged(block_id, into_block_id, request.request_id, self.index, index, ref_count))
        self._release(block_id, request, index, "merged")

    def _release(self, block_id: int, request: Request, index: int, reason: FreeReason) -> None:
        ref_count, end = self._pool.release(block_id)
        if BlockFreed in self._hooks:
            self._hooks.emit(BlockFreed(block_id, request.request_id, self.index, index, ref_count, end, reason))

    def _append(self, table: list[int], block_id: int) -> None:
        self._journal.record(table.pop)
        table.append(block_id)

    def _set_registered(self, request: Request, num_blocks: int) -> None:
        registered = request.num_registered_blocks
        self._journal.record(registered.__setitem__, self.index, registered[self.index])
        registered[self.index] = num_blocks


class FullAttentionGroup(KVCacheGroup):
    """Every token attends to all before it: a hit is an unbroken run from the start, and nothing is dropped."""

    def find_hit(self, request: Request, max_tokens: int) -> tuple[int, ...]:
        """Walk the chain until the first block that is not cached."""
        hit: list[int] = []
        for index in range(max_tokens // self.block_size):
            block_id = self._find_block(request, index)
            if block_id is None:
                break
            hit.append(block_id)
        return tuple(hit)

    def _find_block(self, request: Request, index: int) -> int | None:
        mapped = self._pool.prefix_map.get((self.index, self.block_hash(request, index)))
        if not mapped:
            return None
        block = self._pool.blocks[mapped[0]]
        is_equal = self._merge_policy.is_equal(block, self._tokens(request, index), self._parent_hash(request, index))
        return block.block_id if is_equal else None
