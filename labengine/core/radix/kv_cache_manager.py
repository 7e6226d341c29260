"""The manager of a prefix tree: what a request leaves in the tree, and when."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from labengine.core.kv_cache_manager import KVCacheManager, Moment
from labengine.core.prefix_lookup import Hit
from labengine.core.radix.full_attention import RadixGroup
from labengine.core.request import Request
from labengine.events import FreeReason


class RadixKVCacheManager(KVCacheManager):
    """Inserts a request's blocks into the tree as its prefill is computed, and the others once it gives its blocks up.

    Blocks that a request decodes could be inserted one by one. Each would be a node of its own, or one node would have
    to grow, at the price of an event per token; but nobody asks for an unfinished answer, except a fork, which inserts
    it first.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.prefill_ends: dict[int, int] = {}
        """Per request with blocks: how many tokens its prefill computes, after a preemption generated ones too."""

    @property
    def group(self) -> RadixGroup:
        """The only group."""
        return cast(RadixGroup, self.groups[0])

    def admit(self, request: Request, hit: Hit, num_tokens: int, num_external: int = 0, *, num_spare: int = 0) -> bool:
        """Give a new request its hit blocks, and note where its prefill ends."""
        if not super().admit(request, hit, num_tokens, num_external, num_spare=num_spare):
            return False
        self._journal.put(self.prefill_ends, request.request_id, request.num_tokens)
        return True

    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: Moment) -> int:
        """Return the computed tokens of a prefill after each chunk, and all computed ones at the end; else 0."""
        if moment == "finished":
            return num_tokens
        return num_tokens if moment == "computed" and num_tokens <= self.prefill_ends.get(request.request_id, 0) else 0

    def free(self, request: Request, reason: FreeReason) -> None:
        """Leave the blocks of a request that ends in the tree; then give back all its references."""
        if reason in ("finished", "aborted") and request.has_blocks:
            self.keep(request)
        super().free(request, reason)
        if request.request_id in self.prefill_ends:
            self._journal.put(self.prefill_ends, request.request_id, None)

    def keep(self, request: Request) -> None:
        """Insert the blocks of a request that ends."""
        self.insert(request)

    def insert(self, request: Request, overwritten: Collection[int] = ()) -> None:
        """Insert all full blocks that a request has computed, up to the first that may hold another's KV.

        Such a block does not matter if the tree has its content in another block.
        """
        num_tokens = request.num_computed_tokens
        if overwritten:
            (table,), group = request.block_tables, self.group
            self.extend_hashes(request, num_tokens)
            num_found = group.tree.find(request, len(table)).num_blocks
            num_intact = next((i for i in range(num_found, len(table)) if table[i] in overwritten), len(table))
            num_tokens = min(num_tokens, num_intact * group.block_size)
        self.register(request, num_tokens, "finished")

    def fork(self, request: Request, parent: Request) -> None:
        """Insert the parent's blocks first: full blocks that requests share are protected by the locks of nodes."""
        self.insert(parent)
        super().fork(request, parent)

    def reset_prefix_cache(self) -> bool:
        """Empty the tree too; return False, and change nothing, while a request holds blocks."""
        if not self.pool.num_used:
            first = self.group.tree.root.children.values()
            by_age = sorted(first, key=lambda node: node.age)  # an undone step may reorder them
            self.pool.evict_cached([node.block_ids[0] for node in by_age], "reset")
        return super().reset_prefix_cache()
