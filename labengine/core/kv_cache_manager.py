"""The KV-cache manager: what a request has, what it lacks, and whether it can have it, over all groups on one pool."""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import Literal

from labengine.core.block_pool import BlockPool
from labengine.core.journal import Journal
from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.prefix_cache import HashChain
from labengine.core.request import Request
from labengine.core.step_plan import SlotRun
from labengine.events import FreeReason, PrefixHit
from labengine.hooks import Hooks

Moment = Literal["allocated", "computed"]
"""When a block's hash may be registered: once it is allocated, or once its KV is computed."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A prefix found in the cache: num_tokens computed tokens, in these blocks per group. Nothing is touched yet."""

    num_tokens: int
    block_ids: tuple[tuple[int, ...], ...]


class KVCacheManager:
    """Block tables of all requests. Allocation is all or nothing: False means that nothing has changed.

    Source: the vocabulary follows vLLM v1's KVCacheManager (get_computed_blocks, allocate_slots).
    """

    def __init__(
        self, pool: BlockPool, groups: tuple[KVCacheGroup, ...], hash_chain: HashChain, hooks: Hooks, journal: Journal
    ) -> None:
        self.pool = pool
        self.groups = groups
        self._hash_chain = hash_chain
        self._hash_block_size = min(group.block_size for group in groups)
        self._hooks = hooks
        self._journal = journal

    def find_prefix(self, request: Request) -> Hit:
        """The longest cached prefix; at least the last token is left to compute, for its logits give the next one."""
        self._extend_hashes(request, request.num_tokens)
        found = tuple(group.find_hit(request, request.num_tokens - 1) for group in self.groups)
        num_tokens = min(len(ids) * group.block_size for ids, group in zip(found, self.groups, strict=True))
        num_tokens -= num_tokens % lcm(*(group.block_size for group in self.groups))
        block_ids = (ids[: num_tokens // group.block_size] for ids, group in zip(found, self.groups, strict=True))
        return Hit(num_tokens, tuple(block_ids))

    def can_admit(self, request: Request, hit: Hit) -> bool:
        """True when the request's whole prompt fits now; a hit on a free block costs a free block too."""
        free_hits = sum(not self.pool.blocks[i].ref_count for ids in hit.block_ids for i in ids)
        missing = sum(
            group.num_missing_blocks(request, request.num_tokens) - len(ids)
            for group, ids in zip(self.groups, hit.block_ids, strict=True)
        )
        return missing + free_hits <= self.pool.num_free

    def admit(self, request: Request, hit: Hit, num_tokens: int) -> None:
        """Give a new request its hit blocks and blocks for num_tokens tokens. The caller asked `can_admit`."""
        if PrefixHit in self._hooks:
            self._hooks.emit(PrefixHit(request.request_id, hit.num_tokens, hit.block_ids))
        self._journal.record(setattr, request, "num_computed_tokens", request.num_computed_tokens)
        request.num_computed_tokens = hit.num_tokens
        for group, block_ids in zip(self.groups, hit.block_ids, strict=True):
            group.add_hit(request, block_ids)
        for group in self.groups:
            group.extend(request, num_tokens)
        self.register(request, num_tokens, "allocated")

    def allocate(self, request: Request, num_tokens: int) -> bool:
        """Extend an admitted request's tables to num_tokens tokens; False when the pool has too few free blocks."""
        if sum(group.num_missing_blocks(request, num_tokens) for group in self.groups) > self.pool.num_free:
            return False
        for group in self.groups:
            group.extend(request, num_tokens)
        self.register(request, num_tokens, "allocated")
        return True

    def register(self, request: Request, num_tokens: int, moment: Moment) -> None:
        """Put the full blocks among the request's first num_tokens tokens into the map, if the moment is right."""
        num_registrable = self.num_registrable_tokens(request, num_tokens, moment)
        if num_registrable:
            self._extend_hashes(request, num_registrable)
            for group in self.groups:
                group.register(request, num_registrable)

    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: Moment) -> int:
        """Only after compute: a hash that is registered earlier promises KV that a failed step would never write."""
        return num_tokens if moment == "computed" else 0

    def free(self, request: Request, reason: FreeReason) -> None:
        """Give back all blocks of a request."""
        for group in self.groups:
            group.free(request, reason)

    def slot_runs(self, request: Request, start: int, end: int, group: KVCacheGroup) -> tuple[SlotRun, ...]:
        """Where the KV of tokens [start, end) goes: position p to table[p // block_size], offset p % block_size."""
        table, size = request.block_tables[group.index], group.block_size
        runs = []
        while start < end:
            offset = start % size
            length = min(size - offset, end - start)
            runs.append((table[start // size], offset, length))
            start += length
        return tuple(runs)

    def num_blocks_needed(self, num_tokens: int) -> int:
        """Blocks that num_tokens tokens of one request take in an empty pool."""
        return sum(-(-num_tokens // group.block_size) for group in self.groups)

    def _extend_hashes(self, request: Request, num_tokens: int) -> None:
        """Continue the request's chain over the full blocks of its first num_tokens tokens."""
        hashes, size = request.block_hashes, self._hash_block_size
        for start in range(len(hashes) * size, num_tokens - size + 1, size):
            parent = hashes[-1] if hashes else self._hash_chain.root(request.cache_salt)
            hashes.append(self._hash_chain.link(parent, request.token_ids[start : start + size]))
