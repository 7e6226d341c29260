"""vLLM's hits that end inside a block: the block is copied before the request writes after its hit."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any

from labengine.config import EngineConfig
from labengine.core.block import BlockCopy
from labengine.core.kv_cache_group import GroupHit, KVCacheGroup
from labengine.core.request import Request
from labengine.events import BlockCached, BlockCopied, FreeReason


def hit_unit(config: EngineConfig) -> int:
    """Return the number of tokens at whose multiples hits end.

    It is a link of the hash chain if only full attention and states have larger blocks, else the block of all groups.
    A single group has no hits inside a block. Source: vLLM's partial_hash_hits_enabled (0.32).
    """
    link, groups, longest = config.hash_block_size, config.groups, config.max_model_len or math.inf
    sizes = [group.block_size for group in groups if group.kind == "state"]
    has_larger_states = any(link < size < longest for size in sizes)  # else mode "none": one block for life
    fits = all(group.kind != "sliding_window" or group.block_size == link for group in groups)
    return link if len(groups) > 1 and has_larger_states and fits else config.scheduler_block_size


class PartialHits(KVCacheGroup):
    """A group with hits inside a block. Another table or the cache relies on that block, so the request gets a copy.

    Until the step is planned, both blocks have an extra reference that no table holds.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.partial_entries: dict[int, int] = {}
        """Per request: the table entry of a block that is registered up to a position inside it and is to be copied."""
        self._copies: list[BlockCopy] = []
        """Copies that `carry_over` has not returned yet."""

    @cached_property
    def hit_unit(self) -> int:
        """Hits end at multiples of this many tokens."""
        return hit_unit(self._config)

    @property
    def has_partial_hits(self) -> bool:
        """True if a hit may end inside a block of this group."""
        return self.hit_unit < self.block_size

    def beside_table(self, request: Request) -> Hashable:
        """Return the table entry that the next step copies, and the base's facts."""
        return self.partial_entries.get(request.request_id), super().beside_table(request)

    # -- looking up ----------------------------------------------------------------------------------------------------

    def find_partial_hit(
        self, request: Request, max_tokens: int, siblings: Sequence[KVCacheGroup], *, drops: bool
    ) -> tuple[int, GroupHit]:
        """Return the length of a hit that may end inside a block, and its blocks, as find_hit does.

        drops: True if the last link found is to be computed again.
        """
        raise NotImplementedError

    def cached_up_to(self, request: Request, link: int, siblings: Sequence[KVCacheGroup]) -> list[int] | None:
        """Return the siblings' blocks registered up to the end of this link; None if a sibling has none."""
        found = []
        for group in siblings:
            mapped = self._pool.prefix_map.get((group.index, request.block_hashes[link]))
            if mapped is None:
                return None
            found.append(mapped[0])
        return found

    def ends_inside(self, hit: Sequence[int], num_computed_tokens: int) -> bool:
        """Return True if the hit itself ends inside its last block.

        num_computed_tokens: those of the hit, and those after it that come from elsewhere into other blocks.
        """
        return num_computed_tokens % self.block_size > 0 and num_computed_tokens // self.block_size < len(hit)

    # -- counting ------------------------------------------------------------------------------------------------------

    def num_missing_blocks(self, request: Request, num_tokens: int) -> int:
        """Return one more block if a block has to be copied."""
        missing = super().num_missing_blocks(request, num_tokens)
        return max(missing, 0) + 1 if request.request_id in self.partial_entries else missing

    def num_blocks_to_admit(self, hit: Sequence[int], num_computed_tokens: int, num_blocks: int) -> int:
        """Return one more block for the copy of a block that the hit ends in."""
        is_partial = self.ends_inside(hit, num_computed_tokens)
        return super().num_blocks_to_admit(hit, num_computed_tokens, num_blocks) + is_partial

    # -- tables --------------------------------------------------------------------------------------------------------

    def add_hit(self, request: Request, hit: Sequence[int], num_computed_tokens: int) -> None:
        """Start the request's table with a hit; note the entry if it ends inside a block."""
        super().add_hit(request, hit, num_computed_tokens)
        if self.ends_inside(hit, num_computed_tokens):
            index = num_computed_tokens // self.block_size
            self._set_partial(request, index)
            self._set_registered(request, index)

    def extend(self, request: Request, num_tokens: int) -> None:
        """Take a block for the copy first, then those that the table lacks."""
        if (index := self.partial_entries.get(request.request_id)) is not None:
            self.copy_partial(request, index)
            self._set_partial(request, None)
        super().extend(request, num_tokens)

    def copy_partial(self, request: Request, index: int) -> None:
        """Replace the block that a hit ends in with a copy."""
        table = request.block_tables[self.index]
        block_id, (into_block_id,) = table[index], self._take(request, 1)
        self._journal.record((table.__setitem__, index, block_id))
        table[index] = into_block_id
        self._pool.share(self._pool.blocks[into_block_id])
        if BlockCopied in self._hooks:
            self._hooks.emit(BlockCopied(block_id, into_block_id, request.request_id, self.index, index))
        self._add_copy(BlockCopy(self.index, block_id, into_block_id, request.request_id, index, is_pinned=True))

    def carry_over(self, request: Request, num_tokens: int) -> Sequence[BlockCopy]:
        """Return the copies of blocks that hits end in, then the base's copies."""
        copies = self._copies
        if copies:
            self._journal.record((setattr, self, "_copies", copies))
            self._copies = []
        return [*copies, *super().carry_over(request, num_tokens)]

    def free(self, request: Request, reason: FreeReason) -> None:
        """Free the table. Its blocks need no copies any more, except planned ones."""
        super().free(request, reason)
        if request.request_id in self.partial_entries:
            self._set_partial(request, None)

    # -- cached content ------------------------------------------------------------------------------------------------

    def register_tail(self, request: Request, index: int, link: int) -> None:
        """Register a block that a prompt fills up to this link: it counts as cached, and is freed to the tail."""
        block = self._pool.blocks[request.block_tables[self.index][index]]
        key = (self.index, request.block_hashes[link])  # of a link that ends inside the block
        if key in block.keys:
            return
        if block.prefix is not None and block.prefix.num_links <= link:
            self._pool.evict(block, "replaced")
        mapped = self._merge_policy.mapped_after(self._pool.prefix_map.get(key, ()), block.block_id)
        self._pool.register(block, key, block.token_ids, request.prefix_at(link), mapped)
        if BlockCached in self._hooks:
            event = BlockCached(block.block_id, request.request_id, self.index, index, key[1], mapped, is_full=False)
            self._hooks.emit(event)

    # -- mutations -----------------------------------------------------------------------------------------------------

    def _add_copy(self, copy: BlockCopy) -> None:
        self._journal.record((setattr, self, "_copies", self._copies))
        self._copies = [*self._copies, copy]

    def _set_partial(self, request: Request, index: int | None) -> None:
        self._journal.put(self.partial_entries, request.request_id, index)
