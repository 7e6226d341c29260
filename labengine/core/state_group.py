"""State-space layers (Mamba, linear attention): a request goes on from one state, that after its computed tokens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from labengine.config import EngineConfig
from labengine.core.block import BlockCopy
from labengine.core.block_pool import BlockPool
from labengine.core.journal import Journal
from labengine.core.kv_cache_group import GroupHit, KVCacheGroup
from labengine.core.merge_policy import MergePolicy
from labengine.core.request import Request
from labengine.events import BlockAllocated, BlocksSkipped, FreeReason, StateCopied
from labengine.record.hooks import Hooks


class StateGroup(KVCacheGroup):
    """A block holds one state of all layers of the group. It is overwritten in place, up to the end of its entry.

    A chunk takes one block at most, however long it is. With blocks of 4 and chunks that end at 12, 20 and 22:

        12   [null, null, 4]                    block 4 holds the state after 12 tokens, and can be hit there
        20   [null, null, 4, null, 7]           4 was copied into 7 before the forward pass, which went on in 7
        22   [null, null, null, null, 7, 9]     4 is freed: its copy was made in the step before

    Source: vLLM's MambaManager (0.32), mode "align".
    """

    keeps_states = True

    def __init__(
        self,
        index: int,
        config: EngineConfig,
        pool: BlockPool,
        merge_policy: MergePolicy,
        hooks: Hooks,
        journal: Journal,
    ) -> None:
        super().__init__(index, config, pool, merge_policy, hooks, journal)
        self._num_dropped: dict[int, int] = {}
        """Per request: leading table entries that were dropped, and are null."""

    # -- chunks --------------------------------------------------------------------------------------------------------

    def chunk_end(self, request: Request, start: int, end: int) -> int:
        """Return the first position in a chunk of a prefill at which its state should be cached; else its end.

        Only the state at a chunk's end is left after the forward pass.
        """
        prefill_end = max(request.num_prompt_tokens, request.num_tokens - 1)
        if start >= prefill_end:
            return end
        size, every, junction = self.block_size, self.chunk_unit, request.shared_prefix_boundary
        if end < prefill_end and (end - end % every > start or every <= self._longest_chunk):
            end -= end % every  # a block longer than a step is computed in several, where none can be reached in one
        stops = [(request.num_tokens - 1) // every * every]
        if start % size:
            stops.append(start - start % size + size)
        if start < junction < end:
            stops.append(start + (junction - start) // size * size)
        return max(start, min((stop for stop in stops if start < stop < end), default=end))

    @property
    def chunk_unit(self) -> int:
        """Chunks end at multiples of this many tokens: there hits can end.

        (vLLM takes the states' block size: where attention has larger blocks, the last state may be one without a hit.)
        """
        return self._config.scheduler_block_size

    @property
    def _longest_chunk(self) -> int:
        threshold, budget = self._config.long_prefill_token_threshold, self._config.max_num_batched_tokens
        return min(threshold, budget) if threshold else budget

    # -- looking up ----------------------------------------------------------------------------------------------------

    def find_hit(self, request: Request, max_tokens: int, siblings: Sequence[KVCacheGroup]) -> GroupHit:
        """Return the last state that every sibling has cached: no other is needed, so its entry is the only block."""
        every = self._aligned_every
        num_entries = max_tokens // self.block_size
        for index in range(num_entries - num_entries % every - 1, -1, -every):
            found = [group.cached_block(request, index) for group in siblings]
            if None not in found:
                return [[*[self._pool.null_block] * index, block_id] for block_id in found if block_id is not None]
        return [[] for _ in siblings]

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """Return all computed tokens but the last, after which the state is needed."""
        return max(0, num_computed_tokens - 1)

    @cached_property
    def caches_every_block(self) -> bool:  # type: ignore[override]
        """True without a retention interval, and with one of a block."""
        interval = self._config.retention_interval
        return interval is None or 0 < interval <= self.block_size

    def is_worth_caching(self, request: Request, index: int) -> bool:
        """Return True for a state that sparse retention keeps.

        Those are the multiples of the interval, the last state that an equal prompt can hit, and the one where other
        groups had a longer hit than this one.
        """
        interval, end = self._config.retention_interval or 0, (index + 1) * self.block_size
        if interval and not end % interval:
            return True
        every = self._config.scheduler_block_size
        ends = (request.num_prompt_tokens - 1, request.shared_prefix_boundary)
        return any(end == position - position % every for position in ends)

    # -- counting ------------------------------------------------------------------------------------------------------

    def max_blocks_held(self, num_tokens: int) -> int:
        """Return 2, for the state that a chunk begins with and the one that it leaves; 1 if both are in one entry."""
        return 2 if num_tokens > self.block_size else 1

    def num_missing_blocks(self, request: Request, num_tokens: int) -> int:
        """Return 1 when a chunk that ends after num_tokens tokens leaves its state in an entry behind the table."""
        return min(1, super().num_missing_blocks(request, num_tokens))

    def num_blocks_to_admit(self, hit: Sequence[int], num_computed_tokens: int, num_blocks: int) -> int:
        """Return 1 for the request's own state, and 1 more for a free one that it is copied from."""
        return 1 + sum(self._pool.blocks[block_id].ref_count == 0 for block_id in hit[-1:])

    # -- tables --------------------------------------------------------------------------------------------------------

    def extend(self, request: Request, num_tokens: int) -> None:
        """Append null entries, then one fresh block for the state after num_tokens tokens."""
        if self.num_missing_blocks(request, num_tokens) <= 0:
            return
        table = request.block_tables[self.index]
        index = self._num_blocks(num_tokens) - 1
        block_ids = self._take(request, 1)
        if (num_skipped := index - len(table)) > 0 and BlocksSkipped in self._hooks:
            self._hooks.emit(BlocksSkipped(request.request_id, self.index, num_skipped))
        self._extend_table(table, [*[self._pool.null_block] * num_skipped, *block_ids])
        if BlockAllocated in self._hooks:
            self._hooks.emit(BlockAllocated(block_ids[0], request.request_id, self.index, index))

    def carry_over(self, request: Request, num_entries: int) -> BlockCopy | None:
        """Return the copy of the running state, in the last of num_entries entries, into a newer last entry."""
        table = request.block_tables[self.index]
        if not num_entries or num_entries == len(table):
            return None
        copy = BlockCopy(self.index, table[num_entries - 1], table[-1], request.request_id, len(table) - 1)
        if StateCopied in self._hooks:
            num_tokens = request.num_computed_tokens
            self._hooks.emit(StateCopied(copy.block_id, copy.into_block_id, copy.request_id, self.index, num_tokens))
        return copy

    def slots(self, request: Request, start: int, end: int) -> tuple[tuple[int, int, int], ...]:
        """Return the block of the running state, in the table's last entry."""
        return ((request.block_tables[self.index][(end - 1) // self.block_size], 0, 1),)

    def drop_skipped(self, request: Request, num_computed_tokens: int) -> None:
        """Free the states before the running one: the step that copied from them is over."""
        table, null_block = request.block_tables[self.index], self._pool.null_block
        last = min(self.num_skipped_tokens(num_computed_tokens) // self.block_size, len(table))
        first = self._num_dropped.get(request.request_id, 0)
        if first >= last:
            return
        indices = [index for index in range(last - 1, first - 1, -1) if table[index] != null_block]
        self._set_dropped(request, last)
        if indices:
            dropped = [table[index] for index in indices]
            self._journal.record((table.__setitem__, slice(first, last), table[first:last]))
            table[first:last] = [null_block] * (last - first)
            self.release(request, dropped, indices, "state")

    def free(self, request: Request, reason: FreeReason) -> None:
        """Free the states."""
        super().free(request, reason)
        if request.request_id in self._num_dropped:
            self._set_dropped(request, 0)

    def _set_dropped(self, request: Request, num_entries: int) -> None:
        before = self._num_dropped.get(request.request_id, 0)
        self._journal.record((self._restore_dropped, request.request_id, before))
        self._restore_dropped(request.request_id, num_entries)

    def _restore_dropped(self, request_id: int, num_entries: int) -> None:
        if num_entries:
            self._num_dropped[request_id] = num_entries
        else:
            self._num_dropped.pop(request_id, None)
