"""vLLM's state groups: a state is registered when its step is scheduled, and can be hit after that step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labengine.core.block import BlockCopy, Key
from labengine.core.kv_cache_group import GroupHit, KVCacheGroup
from labengine.core.request import Request
from labengine.core.vllm.checkpoints import Checkpoint, CheckpointGroup
from labengine.core.vllm.partial_hits import PartialHits
from labengine.events import BlockPinned, HashesMoved, StateCopied


class VllmStateGroup(PartialHits, CheckpointGroup):
    """A state group in which hits on a state of the same step make a request, and all behind it, wait.

    Otherwise the copy would come too early. A prompt's last state that an equal prompt can hit may be inside a block;
    it is registered there, and copied into a separate block before the next chunk overwrites it. Source: MambaManager
    (vLLM 0.32).
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.registered_in_step: set[Key] = set()
        """Keys of this step's states. A rolled-back step leaves its keys until the next one is scheduled."""

    @property
    def chunk_unit(self) -> int:
        """The block size of the states, whatever the other groups' is."""
        return self.block_size

    def stops(self, request: Request, start: int, end: int) -> list[int]:
        """Add the end of the prompt's last link, if hits may end inside a block."""
        stops = super().stops(request, start, end)
        if stops and self.has_partial_hits:
            tail = self.last_hit_end(request.num_prompt_tokens, self.hit_unit)
            stops += [tail] if stops[0] < tail < request.num_prompt_tokens else []
        return stops

    def begin_step(self) -> None:
        """Forget the keys of the step before: its states are computed."""
        self.registered_in_step.clear()

    def find_partial_hit(
        self, request: Request, max_tokens: int, siblings: Sequence[KVCacheGroup], *, drops: bool
    ) -> tuple[int, GroupHit]:
        """Return the last state registered at the end of a link. None is dropped, because a drafter has no states."""
        for link in range(min(max_tokens // self.hit_unit, len(request.block_hashes)) - 1, -1, -1):
            if (found := self.cached_up_to(request, link, siblings)) is not None:
                skipped = [self._pool.null_block] * (link // self._hash_ratio)
                return (link + 1) * self.hit_unit, [[*skipped, block_id] for block_id in found]
        return 0, [[] for _ in siblings]

    def num_blocks_to_admit(self, hit: Sequence[int], num_computed_tokens: int, num_blocks: int) -> int:
        """Return more blocks than the pool has for a hit on a state of this step, as vLLM does."""
        if hit and not self.registered_in_step.isdisjoint(self._pool.blocks[hit[-1]].keys):
            return len(self._pool.blocks) + 1
        return super().num_blocks_to_admit(hit, num_computed_tokens, num_blocks)

    def copy_partial(self, request: Request, index: int) -> None:
        """Copy the state that a hit ends at for the request, but a running request's own hittable state for the cache.

        A running request's table keeps the block, and the copy gets its hashes.
        """
        if request.request_id not in self._planned:
            super().copy_partial(request, index)
            return
        pool, block_id, (into_block_id,) = self._pool, request.block_tables[self.index][index], self._take(request, 1)
        if BlockPinned in self._hooks:
            self._hooks.emit(BlockPinned(into_block_id, 1))
        pool.move_keys(pool.blocks[block_id], pool.blocks[into_block_id])
        if HashesMoved in self._hooks:
            self._hooks.emit(HashesMoved(block_id, into_block_id))
        pool.share(pool.blocks[block_id])
        if BlockPinned in self._hooks:
            self._hooks.emit(BlockPinned(block_id, pool.blocks[block_id].ref_count))
        self.registered_in_step.update(pool.blocks[into_block_id].keys)
        self._add_copy(BlockCopy(self.index, block_id, into_block_id, request.request_id, index, is_pinned=True))
        if StateCopied in self._hooks:
            num_tokens = request.num_computed_tokens
            self._hooks.emit(StateCopied(block_id, into_block_id, request.request_id, self.index, num_tokens))

    def register(self, request: Request, num_tokens: int) -> None:
        """Register states, and note their keys.

        A prompt's last state that an equal prompt can hit counts as registered again with each later chunk, until its
        entry is dropped: so a request that hits it waits for two steps if its owner's prompt ends in the second.
        """
        first = request.num_registered_blocks[self.index]
        super().register(request, num_tokens)
        table, last = request.block_tables[self.index], num_tokens // self.block_size
        indices = [*range(first, last)]
        is_boundary = num_tokens and self.checkpoint(request) is None
        if is_boundary and num_tokens == self.last_hit_end(request.num_prompt_tokens, self._config.hash_block_size):
            index = -(-num_tokens // self.block_size) - 1
            self.register_boundary(request, index, num_tokens)
            indices.append(index)
        for index in indices:
            if 0 <= index < len(table) and table[index] != self._pool.null_block:
                self.registered_in_step.update(self._pool.blocks[table[index]].keys)

    def register_checkpoint(self, request: Request, checkpoint: Checkpoint) -> Key | None:
        """Register a state inside this step's chunk, and note its key."""
        if (key := super().register_checkpoint(request, checkpoint)) is not None:
            self.registered_in_step.add(key)
        return key

    def register_boundary(self, request: Request, index: int, num_tokens: int) -> None:
        """Register the last state of a prompt that can be hit, even if sparse retention would leave it out."""
        table = request.block_tables[self.index]
        if index >= len(table) or table[index] == self._pool.null_block:
            return
        link = num_tokens // self._config.hash_block_size - 1
        if num_tokens % self.block_size:
            self.register_tail(request, index, link)
            self._set_partial(request, index)
            self._set_registered(request, index)
        elif (self.index, request.block_hashes[link]) not in self._pool.blocks[table[index]].keys:
            self.register_block(request, index)
