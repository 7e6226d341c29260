"""The KV-cache manager: the blocks that a request has, lacks and can get, over all groups on one pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from labengine.config import EngineConfig
from labengine.core.block import BlockCopy
from labengine.core.block_pool import BlockPool
from labengine.core.connector import BlockTransfer, LocalHit
from labengine.core.hash_chain import HashChain
from labengine.core.journal import Journal
from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.prefix_lookup import Hit, PrefixLookup
from labengine.core.request import Request
from labengine.core.step_plan import SlotRun
from labengine.events import ExternalHit, FreeReason, PrefixCacheReset, PrefixHit, RequestForked, SharedPrefixFound
from labengine.record.hooks import Hooks

Moment = Literal["allocated", "computed", "finished"]
"""The moment at which a block's hash may be registered: when it is allocated, when its KV is computed, or (only with a
prefix tree) when its request ends, is forked or, in `labengine-radix`, preempted."""


class KVCacheManager:
    """Block tables of all requests. Allocation is all or nothing: after False no request has more blocks than before.

    Source: the vocabulary follows vLLM v1's KVCacheManager (get_computed_blocks, allocate_slots).
    """

    needs_tokens_to_allocate = False
    """True if allocating hashes the new tokens. No step can then be scheduled before the last one's tokens are
    sampled."""

    finds_longest = True
    """False for a policy that may leave cached blocks unused: the rule `longest` then does not apply."""

    drops_unregistered: tuple[FreeReason, ...] = ()
    """Reasons for which a request drops computed blocks that were never registered; none if each step registers its
    own."""

    keeps_lookahead = False
    """True if a request has slots for a drafter's KV after a step's tokens."""

    num_lookahead: int | None = None
    """Number of these slots, when replaying an operation that names it; None for as many as drafts."""

    def __init__(
        self,
        config: EngineConfig,
        pool: BlockPool,
        groups: tuple[KVCacheGroup, ...],
        prefix_lookup: PrefixLookup,
        hash_chain: HashChain,
        hooks: Hooks,
        journal: Journal,
    ) -> None:
        self.pool = pool
        self.groups = groups
        self.copies: list[BlockCopy] = []
        """Blocks to copy before the next forward pass."""
        self.max_accepted = config.num_drafts
        """Most guessed tokens that a step computes and that count as computed afterwards."""
        self._has_states = any(group.keeps_states for group in groups)
        self._unit = config.scheduler_block_size
        self._config = config
        self._prefix_lookup = prefix_lookup
        self._hash_chain = hash_chain
        self._hooks = hooks
        self._journal = journal

    def begin_step(self) -> None:
        """Note that a step is being scheduled: blocks written in the step before can be read."""
        for group in self.groups:
            group.begin_step()

    # -- looking up ----------------------------------------------------------------------------------------------------

    def find_prefix(self, request: Request) -> Hit:
        """Return the longest cached prefix that leaves at least the last token, whose logits give the next one.

        Empty for a request that must not read the cache.
        """
        if request.sampling.skip_reading_prefix_cache:
            return Hit(0, ((),) * len(self.groups))
        self.extend_hashes(request, request.num_tokens)
        return self.longest_hit(request, request.num_tokens - 1)

    def longest_hit(self, request: Request, max_tokens: int) -> Hit:
        """Return the longest hit of at most max_tokens tokens that all groups have."""
        return self._prefix_lookup.longest_hit(request, max_tokens)

    def note_shared_prefix(self, request: Request, hit: Hit) -> None:
        """Note the end of a prefix that some groups hold and others have dropped: it is worth caching there."""
        num_tokens, before = hit.shared_prefix_boundary, request.shared_prefix_boundary
        if num_tokens == before:
            return
        self._journal.record((setattr, request, "shared_prefix_boundary", before))
        request.shared_prefix_boundary = num_tokens
        if SharedPrefixFound in self._hooks:
            self._hooks.emit(SharedPrefixFound(request.request_id, num_tokens))

    def can_admit(self, request: Request, hit: Hit, num_external: int = 0, num_spare: int = 0) -> bool:
        """Return True if the whole request fits now and leaves num_spare blocks free.

        A window group counts only the blocks held at a time, not those of the whole request (vLLM issue 39734).
        """
        num_tokens = request.num_tokens
        held = [
            -(-num_tokens // g.block_size) if g.keeps_states else g.max_blocks_held(num_tokens) for g in self.groups
        ]
        return self.has_room(hit, num_external, held, num_spare)

    def has_room(self, hit: Hit, num_external: int, num_blocks: Sequence[int], num_spare: int) -> bool:
        """Return True if enough blocks are free for tables that begin with a hit, and num_spare stay free.

        num_blocks: blocks per group, the hit's included.
        """
        num_computed, needed = hit.num_tokens + num_external, num_spare
        for group, block_ids, wanted in zip(self.groups, hit.block_ids, num_blocks, strict=True):
            needed += group.num_blocks_to_admit(block_ids, num_computed, wanted)
        return needed <= self.pool.num_free

    # -- allocating ----------------------------------------------------------------------------------------------------

    def admit(self, request: Request, hit: Hit, num_tokens: int, num_external: int = 0, *, num_spare: int = 0) -> bool:
        """Give a new request its hit blocks, and blocks for num_tokens tokens in all; return False if too few are free.

        num_external: tokens after the hit that the external tier is about to fill.
        """
        ends = (num_tokens if group.keeps_states else self.num_slots(request, num_tokens) for group in self.groups)
        num_blocks = [-(-end // group.block_size) for group, end in zip(self.groups, ends, strict=True)]
        if not self.has_room(hit, num_external, num_blocks, num_spare):
            return False
        num_computed = hit.num_tokens + num_external
        if PrefixHit in self._hooks:
            is_skipped = request.sampling.skip_reading_prefix_cache and not hit.num_tokens
            self._hooks.emit(PrefixHit(request.request_id, hit.num_tokens, hit.block_ids, is_skipped))
        if num_external and ExternalHit in self._hooks:
            self._hooks.emit(ExternalHit(request.request_id, num_external, request.is_loading))
        self._set_computed(request, hit.num_tokens if request.is_loading else num_computed)
        if num_computed:
            self.allocate_computed(request, hit, num_external)
        self._extend(request, num_tokens)
        if not request.is_loading:
            self.register(request, num_tokens, "allocated")
        return True

    def allocate_computed(self, request: Request, hit: Hit, num_external: int) -> None:
        """Touch every group's hits; then, in a second phase, take fresh blocks for the external tokens of every group.

        Hit blocks may still be in the free queue. If each group did both at once, the first group's fresh blocks could
        be the second group's hits, and one block would be in two tables (vLLM PR 44409).
        """
        num_computed = hit.num_tokens + num_external
        for group, block_ids in zip(self.groups, hit.block_ids, strict=True):
            group.add_hit(request, block_ids, num_computed)
        if num_external:
            for group in self.groups:
                group.add_external(request, num_computed)

    def allocate(self, request: Request, num_tokens: int) -> bool:
        """Extend an admitted request's tables to num_tokens tokens. Returns False if too few blocks are free.

        Blocks that have left a window are freed first, and stay free in any case.
        """
        missing, num_slots = 0, self.num_slots(request, num_tokens)
        for group in self.groups:
            group.drop_skipped(request, request.num_computed_tokens)
            needed = num_tokens if group.keeps_states else num_slots
            if (lacking := group.num_missing_blocks(request, needed)) > 0:
                missing += lacking
        if self._has_forked:
            missing += len(to_copy := self._entries_to_copy(request, num_tokens))
        if missing:
            if missing > self.pool.num_free:
                return False
            for group, index in to_copy if self._has_forked else ():
                self.copy(group, request, index)
        if missing or self._has_states:
            self._extend(request, num_tokens)
        self.register(request, num_tokens, "allocated")
        return True

    def num_slots(self, request: Request, num_tokens: int) -> int:
        """Return how many slots a request needs before a step computes its first num_tokens tokens: one each.

        Extra slots for a drafter's KV do not apply to states, because drafters have none.
        """
        return num_tokens

    def has_blocks_for(self, request: Request, num_tokens: int) -> bool:
        """Return True if a running request's tables and the pool have blocks for its first num_tokens tokens."""
        lacking = [group.num_missing_blocks(request, num_tokens) for group in self.groups]
        missing = sum(number for number in lacking if number > 0)
        if self._has_forked:
            missing += len(self._entries_to_copy(request, num_tokens))
        return missing <= self.pool.num_free

    def _extend(self, request: Request, num_tokens: int) -> None:
        """Append blocks to all tables; a state that continues in another block is copied there."""
        num_slots = self.num_slots(request, num_tokens)
        for group in self.groups:
            group.extend(request, num_tokens if group.keeps_states else num_slots)
            if copies := group.carry_over(request, num_tokens):
                self._set_copies([*self.copies, *copies])

    def free(self, request: Request, reason: FreeReason) -> None:
        """Give back all blocks of a request, and drop its planned copies."""
        if self.copies:
            request_id = request.request_id
            self._set_copies([copy for copy in self.copies if copy.is_pinned or copy.request_id != request_id])
        for group in self.groups:
            group.free(request, reason)

    # -- forks ---------------------------------------------------------------------------------------------------------

    _has_forked = False
    """True once a request has forked: before that, a partly filled block has one reference."""

    def fork(self, request: Request, parent: Request) -> None:
        """Give a fork its parent's blocks. It takes none from the pool, so it always fits."""
        num_tokens = min(group.num_shared_tokens(parent.num_computed_tokens) for group in self.groups)
        self._set_computed(request, num_tokens)
        if RequestForked in self._hooks:
            block_ids = tuple(tuple(group.shared_blocks(parent, num_tokens)) for group in self.groups)
            self._hooks.emit(RequestForked(request.request_id, parent.request_id, num_tokens, block_ids))
        request.continue_chain(parent, num_tokens // self._config.hash_block_size)
        for group in self.groups:
            group.add_shared(request, parent, num_tokens)
        self._has_forked = True

    def copy(self, group: KVCacheGroup, request: Request, index: int) -> None:
        """Have a table entry's block copied before the next forward pass, until which it is not written to."""
        self._set_copies([*self.copies, group.copy(request, index)])

    def take_copies(self) -> tuple[BlockCopy, ...]:
        """Return and clear the copies of this step, in the order in which to make them."""
        copies = tuple(self.copies)
        if copies:
            self._set_copies([])
        return copies

    def _entries_to_copy(self, request: Request, num_tokens: int) -> list[tuple[KVCacheGroup, int]]:
        return [(group, index) for group in self.groups for index in group.entries_to_copy(request, num_tokens)]

    def _set_copies(self, copies: list[BlockCopy]) -> None:
        self._journal.record((setattr, self, "copies", self.copies))
        self.copies = copies

    # -- cached content ------------------------------------------------------------------------------------------------

    def register(self, request: Request, num_tokens: int, moment: Moment) -> None:
        """Register the full blocks of the first num_tokens tokens, if this is the moment to register hashes."""
        num_registrable = self.num_registrable_tokens(request, num_tokens, moment)
        if not num_registrable:
            return
        for group in self.groups:
            num_cacheable = self.num_cacheable_tokens(group, num_registrable)
            self.extend_hashes(request, num_cacheable)
            group.register(request, num_cacheable)

    def num_cacheable_tokens(self, group: KVCacheGroup, num_tokens: int) -> int:
        """Return how many of a request's first tokens can be in a hit, which ends where all groups have full blocks."""
        if len(self.groups) == 1:
            return num_tokens
        # Do not cut hits inside a block: a state would be registered again while its request still continues from it.
        return num_tokens if group.hit_unit < self._unit else num_tokens - num_tokens % self._unit

    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: Moment) -> int:
        """Return num_tokens once computed, else 0: an earlier hash promises KV that a failed step would never write."""
        return num_tokens if moment == "computed" else 0

    def reset_prefix_cache(self) -> bool:
        """Forget all cached content; return False, and change nothing, while a request holds blocks."""
        if self.pool.num_used:
            return False
        self.pool.evict_cached(range(len(self.pool.blocks)), "reset")
        if PrefixCacheReset in self._hooks:
            self._hooks.emit(PrefixCacheReset())
        return True

    def extend_hashes(self, request: Request, num_tokens: int) -> None:
        """Continue the request's hash chain over the full links among its first num_tokens tokens."""
        hashes, size = request.block_hashes, self._config.hash_block_size
        if num_tokens < (len(hashes) + 1) * size:
            return
        block_hash = hashes[-1] if hashes else self._hash_chain.root(request.extra_keys)
        for start in range(len(hashes) * size, num_tokens - size + 1, size):
            token_ids = tuple(request.token_ids[start : start + size])
            keys = request.block_keys(start, start + size) if request.images else ()
            parent_hash = self._hash_chain.keyed(block_hash, keys) if keys else block_hash
            block_hash = self._hash_chain.link(parent_hash, token_ids)
            hashes.append(block_hash)
            request.links.append((*token_ids, *keys) if keys else token_ids)

    def checkpoint(self, request: Request) -> int:
        """Return after how many tokens a request's newest chunk leaves a state inside it; 0 for none."""
        return 0

    # -- slots ---------------------------------------------------------------------------------------------------------

    def slot_runs(self, request: Request, start: int, end: int, group: KVCacheGroup) -> tuple[SlotRun, ...]:
        """Return the slots for the KV of tokens [start, end), or the block of a state, as the group's `slots`."""
        return group.slots(request, start, end)

    def external_blocks(self, request: Request, num_local: int, num_computed: int) -> list[BlockTransfer]:
        """Return the blocks of tokens [num_local, num_computed) that a load fills and later tokens read."""
        return [
            transfer
            for group in self.groups
            for transfer in self.transfers(
                request,
                group,
                max(num_local, group.num_skipped_tokens(num_computed)) // group.block_size,
                num_computed // group.block_size,
            )
        ]

    def local_hits(self, request: Request, num_local: int) -> list[LocalHit]:
        """Return the table entries of the request's first num_local tokens, and whether each block is still intact."""
        hits = []
        for group in self.groups:
            num_blocks = num_local // group.block_size
            block_hashes = group.block_hashes(request, 0, num_blocks)
            for transfer in self.transfers(request, group, 0, num_blocks):
                keys = self.pool.blocks[transfer.block_id].keys
                hits.append(LocalHit(transfer, (group.index, block_hashes[transfer.index]) in keys))
        return hits

    def transfers(self, request: Request, group: KVCacheGroup, first: int, last: int) -> list[BlockTransfer]:
        """Return the request's full blocks [first, last) of one group as transfers."""
        table = request.block_tables[group.index]
        return [
            BlockTransfer(request.request_id, group.index, index, table[index], block_hash)
            for index, block_hash in enumerate(group.tier_hashes(request, first, last), first)
            if table[index] != self.pool.null_block
        ]

    def num_blocks_needed(self, num_tokens: int) -> int:
        """Return the most blocks that one request of num_tokens tokens holds at a time in an empty pool."""
        return sum(group.max_blocks_held(num_tokens) for group in self.groups)

    def _set_computed(self, request: Request, num_tokens: int) -> None:
        self._journal.record((setattr, request, "num_computed_tokens", request.num_computed_tokens))
        request.num_computed_tokens = num_tokens
