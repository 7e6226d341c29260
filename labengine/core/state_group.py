"""State-space layers (Mamba, linear attention): a request continues from one state, after its computed tokens."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from labengine.core.block import BlockCopy
from labengine.core.kv_cache_group import GroupHit, KVCacheGroup
from labengine.core.request import Request
from labengine.events import BlockAllocated, BlockMoved, FreeReason, StateCopied


class PlannedStates(NamedTuple):
    """The places at which a request's newest step leaves its states."""

    start: int
    """Tokens computed before the step."""
    entries: tuple[int, ...]
    """Table entries: without drafts, that of the state at the step's end; else one for the state after each token."""

    def after(self, num_computed_tokens: int) -> int:
        """Return the entry of the state after num_computed_tokens tokens, which is the last accepted one."""
        return self.entries[min(num_computed_tokens - self.start, len(self.entries)) - 1]


class StateGroup(KVCacheGroup):
    """A block holds one state of all layers of the group. It is overwritten in place, up to the end of its entry.

    A chunk takes one block at most, however long it is. With blocks of 4 and chunks that end at 12, 20 and 22:

        12   [null, null, 4]                    block 4 holds the state after 12 tokens, and can be hit there
        20   [null, null, 4, null, 7]           4 was copied into 7 before the forward pass, which continued in 7
        22   [null, null, null, null, 7, 9]     4 is freed: its copy was made in the step before

    With speculation a table has num_drafts more entries at its end, of scratch blocks. A step that judges drafts leaves
    the state after each of its tokens in a separate block, so that no later read sees a rejected token.

    Source: vLLM's MambaManager (0.32), mode "align".
    """

    keeps_states = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._num_dropped: dict[int, int] = {}
        """Per request: leading table entries that were dropped and are null."""
        self._planned: dict[int, PlannedStates] = {}
        """Per request with a running state: the state's place."""

    # -- chunks --------------------------------------------------------------------------------------------------------

    def chunk_end(self, request: Request, start: int, end: int) -> int:
        """Return the first position in a prefill's chunk at which its state should be cached, else the chunk's end.

        The forward pass leaves only the state at a chunk's end.
        """
        prefill_end = max(request.num_prompt_tokens, request.num_tokens - 1)
        if start >= prefill_end:
            return end
        size, every, junction = self.block_size, self.chunk_unit, request.shared_prefix_boundary
        if end < prefill_end and (end - end % every > start or every <= self._longest_chunk):
            end -= end % every  # except where a block is longer than a step, and takes several chunks
        stops = self.stops(request, start, end)
        if start < junction < end:
            stops.append(start + (junction - start) // size * size)
        return max(start, min((stop for stop in stops if start < stop < end), default=end))

    def stops(self, request: Request, start: int, end: int) -> list[int]:
        """Return the positions that a prefill's chunk, here of tokens [start, end), must not pass.

        They are the last one at which an equal text can hit a state, and the end of the block that the chunk begins in.
        """
        last, offset = self.last_hit_end(request.num_tokens, self.chunk_unit), start % self.block_size
        return [last, start - offset + self.block_size] if offset else [last]

    def last_hit_end(self, num_tokens: int, unit: int) -> int:
        """Return where a hit of an equal text ends, if hits end at multiples of `unit` tokens."""
        if self._config.drops_hit_blocks:  # in attention groups, with which states have to agree
            return max(0, num_tokens // unit * unit - unit)
        return (num_tokens - 1) // unit * unit

    @property
    def chunk_unit(self) -> int:
        """Chunks end at multiples of this many tokens, where hits can end.

        vLLM takes the states' block size: where attention has larger blocks, the last state may allow no hit.
        """
        return self._config.scheduler_block_size

    @property
    def _longest_chunk(self) -> int:
        threshold, budget = self._config.long_prefill_token_threshold, self._config.max_num_batched_tokens
        return min(threshold, budget) if threshold else budget

    # -- looking up ----------------------------------------------------------------------------------------------------

    def find_hit(self, request: Request, max_tokens: int, siblings: Sequence[KVCacheGroup]) -> GroupHit:
        """Return the last state that every sibling has cached. No other is needed, so all earlier entries are null."""
        every = self._aligned_every
        num_entries = max_tokens // self.block_size
        for index in range(num_entries - num_entries % every - 1, -1, -every):
            found = [group.cached_block(request, index) for group in siblings]
            if None not in found:
                return [[*[self._pool.null_block] * index, block_id] for block_id in found if block_id is not None]
        return [[] for _ in siblings]

    def find_dropped_hit(self, request: Request, max_tokens: int, siblings: Sequence[KVCacheGroup]) -> GroupHit:
        """Return a hit as find_hit does: only attention drops a block, because a drafter has no states."""
        return self.find_hit(request, max_tokens, siblings)

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """Return the number of computed tokens without the last one, after which the state is needed."""
        return max(0, num_computed_tokens - 1)

    @cached_property
    def caches_every_block(self) -> bool:  # type: ignore[override]
        """True without a retention interval, or with one of at most a block."""
        interval = self._config.retention_interval
        return interval is None or 0 < interval <= self.block_size

    def is_worth_caching(self, request: Request, index: int) -> bool:
        """Return True for a state that sparse retention keeps.

        It keeps the multiples of the interval, the last state that an equal prompt can hit, and the one where other
        groups had a longer hit than this one.
        """
        if self.is_kept_by_interval((index + 1) * self.block_size):
            return True
        every = self.hit_unit
        ends = (*self.ends_of_prompt(request), request.shared_prefix_boundary)
        return any(index + 1 == position // every * every // self.block_size for position in ends)

    def is_kept_by_interval(self, num_tokens: int) -> bool:
        """Return True if the retention interval keeps the state after num_tokens tokens, the end of an entry."""
        interval = self._config.retention_interval
        return interval is None or 0 < interval <= self.block_size or (interval > 0 and num_tokens % interval == 0)

    # -- counting ------------------------------------------------------------------------------------------------------

    @property
    def num_scratch(self) -> int:
        """Blocks after that of the running state, for the states after drafts."""
        return self._config.num_drafts

    def max_blocks_held(self, num_tokens: int) -> int:
        """Return 2, for the states that a chunk begins with and leaves; 1 if both are in one entry.

        Drafts add the entries between the two, and the scratch blocks.
        """
        return min(self._num_blocks(num_tokens), 1 + self._num_blocks(1 + self.num_scratch)) + self.num_scratch

    def num_missing_blocks(self, request: Request, num_tokens: int) -> int:
        """Return 1 if a chunk that ends after num_tokens tokens leaves its state in an entry beyond the table.

        The first chunk also takes the scratch blocks.
        """
        missing = super().num_missing_blocks(request, num_tokens) + self.num_scratch
        num_states = self._num_blocks(num_tokens) - self.first_written(request, num_tokens)
        return min(missing, num_states if request.request_id in self._planned else num_states + self.num_scratch)

    def first_written(self, request: Request, num_tokens: int) -> int:
        """Return the first table entry to which a chunk that ends after num_tokens tokens writes: here its last."""
        return self._num_blocks(num_tokens) - 1

    def num_blocks_to_admit(self, hit: Sequence[int], num_computed_tokens: int, num_blocks: int) -> int:
        """Return 1 for the request's own state, 1 for each scratch block, and 1 more if the hit state is free."""
        num_own = self.num_own_blocks(len(hit), num_blocks)
        return num_own + self.num_scratch + sum(self._pool.blocks[block_id].ref_count == 0 for block_id in hit[-1:])

    def num_own_blocks(self, num_hit: int, num_blocks: int) -> int:
        """Return how many states a first chunk leaves after num_hit entries of a table: one."""
        return min(1, num_blocks - num_hit)  # 0 only where a hit ends inside the last block

    # -- tables --------------------------------------------------------------------------------------------------------

    def extend(self, request: Request, num_tokens: int) -> None:
        """Append null entries, the scratch blocks that the state has passed, and a fresh block.

        The state after num_tokens tokens is then in the first entry after the null ones.
        """
        if (missing := self.num_missing_blocks(request, num_tokens)) <= 0:
            return
        table, num_before = request.block_tables[self.index], len(request.block_tables[self.index])
        first = self.first_written(request, num_tokens)
        block_ids = self._take(request, missing)
        self.skip(request, first - num_before)
        if request.request_id in self._planned:
            for index in range(num_before - self.num_scratch, min(num_before, first)):
                self.move(request, index)
        self._extend_table(table, block_ids)
        if BlockAllocated in self._hooks:
            for index, block_id in enumerate(block_ids, len(table) - missing):
                self._hooks.emit(BlockAllocated(block_id, request.request_id, self.index, index))

    def add_external(self, request: Request, num_tokens: int) -> None:
        """Append null entries and a block for the state after num_tokens tokens, which comes from another lab.

        Scratch blocks come with the first step, as after a hit.
        """
        table = request.block_tables[self.index]
        index = (num_tokens - 1) // self.block_size
        if index < len(table):
            return
        block_ids = self._take(request, 1)
        self.skip(request, index - len(table))
        self._extend_table(table, block_ids)
        if BlockAllocated in self._hooks:
            self._hooks.emit(BlockAllocated(block_ids[0], request.request_id, self.index, index))

    def move(self, request: Request, index: int) -> None:
        """Move a scratch block from an entry that the running state has passed to the end of the table."""
        table, block_id = request.block_tables[self.index], request.block_tables[self.index][index]
        planned, into_index = self._planned[request.request_id], len(table)
        entries = tuple(into_index if entry == index else entry for entry in planned.entries)
        self._journal.put(self._planned, request.request_id, planned._replace(entries=entries))
        self._extend_table(table, [block_id])
        self._journal.record((table.__setitem__, index, block_id))
        table[index] = self._pool.null_block
        if BlockMoved in self._hooks:
            self._hooks.emit(BlockMoved(block_id, request.request_id, self.index, index, into_index))

    def carry_over(self, request: Request, num_tokens: int) -> Sequence[BlockCopy]:
        """Note where a step up to num_tokens tokens leaves its states.

        Returns the copy of the running state, if it has to continue in another block.
        """
        start, table = request.next_position, request.block_tables[self.index]
        before, entries = self.state_entry(request), self.entries_of_states(request, num_tokens)
        self._journal.put(self._planned, request.request_id, PlannedStates(start, entries))
        if not start or before == entries[0]:
            return ()
        copy = BlockCopy(self.index, table[before], table[entries[0]], request.request_id, entries[0])
        if StateCopied in self._hooks:
            self._hooks.emit(StateCopied(copy.block_id, copy.into_block_id, copy.request_id, self.index, start))
        return (copy,)

    def beside_table(self, request: Request) -> Hashable:
        """Return the running state's entry, which with drafts the table does not show."""
        planned = self.planned(request)
        return planned and planned.after(request.num_computed_tokens)

    def planned(self, request: Request) -> PlannedStates | None:
        """Return where the request's newest step leaves its states; None before its first step."""
        return self._planned.get(request.request_id)

    def state_entry(self, request: Request) -> int:
        """Return the table entry of the state that the request's next step begins with, after at least 1 token.

        If the step before is planned but not booked, all its drafts count as accepted.
        """
        num_tokens = request.next_position
        if (planned := self.planned(request)) is not None:
            return planned.entries[-1] if request.num_unbooked_tokens else planned.after(num_tokens)
        return (num_tokens - 1) // self.block_size  # of a hit, or of a fork

    def slots(self, request: Request, start: int, end: int) -> tuple[tuple[int, int, int], ...]:
        """Return the block of the running state; with drafts, one block per token for the state after it, in order."""
        table = request.block_tables[self.index]
        return tuple((table[entry], 0, 1) for entry in self.entries_of_states(request, end))

    def entries_of_states(self, request: Request, end: int) -> tuple[int, ...]:
        """Return the table entries for the states of a step that ends after `end` tokens, drafts included.

        They are the entry of the last token and those after it, in order. But a state at the end of an entry with a
        block goes into that entry, where it can be hit if its token is accepted. Rejected drafts that had led two
        entries ahead may have left the last token's entry without a block: then the next entry with a block is used.
        """
        table, null_block, size = request.block_tables[self.index], self._pool.null_block, self.block_size
        num_drafts, running = self._num_drafts(request, end), (end - 1) // size
        running = next((entry for entry in range(running, len(table)) if table[entry] != null_block), running)
        entries = [*range(running, running + 1 + num_drafts)]
        for number in range(num_drafts + 1) if num_drafts else ():
            own, offset = divmod(end - num_drafts - 1 + number, size)
            if offset == size - 1 and table[own] != null_block:
                if own in entries:  # the running one
                    entries[entries.index(own)] = entries[number]
                entries[number] = own
        return tuple(entries)

    def _num_drafts(self, request: Request, end: int) -> int:
        return min(max(0, end - request.num_tokens), self.num_scratch)

    # -- forks ---------------------------------------------------------------------------------------------------------

    def shared_blocks(self, parent: Request, num_tokens: int) -> list[int]:
        """Return the block of the parent's state after null entries; with drafts it may be a scratch block."""
        if not num_tokens:
            return []
        block_id = parent.block_tables[self.index][self.state_entry(parent)]
        return [*[self._pool.null_block] * (self.num_skipped_tokens(num_tokens) // self.block_size), block_id]

    def entries_to_copy(self, request: Request, num_tokens: int) -> list[int]:
        """Return the entries, scratch blocks included, that a step may write to and another table also has."""
        if not self.num_scratch:
            return super().entries_to_copy(request, num_tokens)
        table, null_block = request.block_tables[self.index], self._pool.null_block
        written = range(request.num_computed_tokens // self.block_size, len(table))
        return [index for index in written if table[index] != null_block and self.copies_before_write(request, index)]

    # -- dropping ------------------------------------------------------------------------------------------------------

    def drop_skipped(self, request: Request, num_computed_tokens: int) -> None:
        """Free the states before the running one: the step that copied from them is over."""
        table, null_block = request.block_tables[self.index], self._pool.null_block
        last = min(self.num_skipped_tokens(num_computed_tokens) // self.block_size, len(table))
        first = self._num_dropped.get(request.request_id, 0)
        if first >= last:
            return
        indices = [index for index in range(last - 1, first - 1, -1) if table[index] != null_block]
        self._journal.put(self._num_dropped, request.request_id, last)
        if indices:
            dropped = [table[index] for index in indices]
            self._journal.record((table.__setitem__, slice(first, last), table[first:last]))
            table[first:last] = [null_block] * (last - first)
            self.release(request, dropped, indices, "state")

    def free(self, request: Request, reason: FreeReason) -> None:
        """Free the states."""
        super().free(request, reason)
        for kept in (self._num_dropped, self._planned):
            if request.request_id in kept:
                self._journal.put(kept, request.request_id, None)
