"""One KV-cache group: layers that share a block table, and the rules for finding, adding and freeing blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import islice, repeat

from labengine.config import EngineConfig
from labengine.core.block import BlockCopy
from labengine.core.block_pool import BlockPool, FreedTwiceError
from labengine.core.journal import Journal
from labengine.core.merge_policy import MergePolicy
from labengine.core.part_methods import is_own
from labengine.core.request import Request
from labengine.events import (
    BlockAllocated,
    BlockCached,
    BlockCopied,
    BlockFreed,
    BlockMerged,
    BlocksSkipped,
    BlockTouched,
    FreeReason,
    QueueEnd,
)
from labengine.record.hooks import Hooks
from labengine.record.wording import counted


class NotGrantedError(RuntimeError):
    """A request takes more blocks than are free, because a method that counts or grants blocks promised too many."""

    def __init__(self, request_id: int, why: str) -> None:
        super().__init__(why)
        self.request_id = request_id


GroupHit = list[list[int]]
"""Hit blocks of several groups of one kind, in table order, equally many each; null outside the window."""


class KVCacheGroup:
    """Block tables of one group on the shared pool. Every change of a table happens here and emits an event.

    A subclass is a kind of attention: it decides which cached blocks form a hit, and which tokens are no longer read.
    """

    def __init__(
        self,
        index: int,
        config: EngineConfig,
        pool: BlockPool,
        merge_policy: MergePolicy,
        hooks: Hooks,
        journal: Journal,
    ) -> None:
        self.index = index
        self.spec = config.groups[index]
        self.block_size = self.spec.block_size
        self._config = config
        self._hash_ratio = self.block_size // config.hash_block_size
        self._unit = config.scheduler_block_size
        self._aligned_every = max(1, self.hit_unit // self.block_size)
        """Blocks between two positions at which all groups have only full blocks."""
        self._pool = pool
        self._merge_policy = merge_policy
        self._hooks = hooks
        self._journal = journal

    has_every_shorter_hit = False
    """True if each shorter prefix of a hit, cut where every group has full blocks, is a hit too."""

    caches_every_block = True
    """True if every full block is worth caching."""

    keeps_states = False
    """True if a block holds one state instead of the KV of block_size tokens: each step overwrites it."""

    has_checkpoints = False
    """True if a chunk may leave a state at a position inside it."""

    finds_longest = True
    """False for a policy that may leave cached blocks unused: the rule `longest` then does not apply."""

    @property
    def hit_unit(self) -> int:
        """Hits end at multiples of this many tokens, at which every group has full blocks."""
        return self._unit

    # -- what a kind of attention decides ------------------------------------------------------------------------------

    def find_hit(self, request: Request, max_tokens: int, siblings: Sequence[KVCacheGroup]) -> GroupHit:
        """Return the cached blocks of the longest prefix of at most max_tokens tokens, for each sibling.

        siblings: this group and all others of its spec; they hold equal prefixes and hit together. Touches nothing.
        """
        raise NotImplementedError

    def find_dropped_hit(self, request: Request, max_tokens: int, siblings: Sequence[KVCacheGroup]) -> GroupHit:
        """Return a hit as find_hit does, but without the last block, which is computed again."""
        raise NotImplementedError

    @property
    def drops_last_block(self) -> bool:
        """True if hits end one block early, because EAGLE's head needs the hidden states of its tokens.

        Groups of one spec are looked up together, so marking one of them marks all.
        """
        config = self._config
        is_marked = not config.eagle_groups or any(config.groups[index] == self.spec for index in config.eagle_groups)
        return config.drops_hit_blocks and is_marked

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """Return the number of leading tokens that no token after the first num_computed_tokens attends to."""
        return 0

    def max_blocks_held(self, num_tokens: int) -> int:
        """Return the most blocks that a request of num_tokens tokens holds at a time."""
        return self._num_blocks(num_tokens)

    def is_worth_caching(self, request: Request, index: int) -> bool:
        """Return False for a full block that no hit can ever use."""
        return True

    def ends_of_prompt(self, request: Request) -> tuple[int, ...]:
        """Return where hits by an equal prompt end; if some group drops a block, also hits by a longer prompt."""
        size, num_prompt = self._unit, request.num_prompt_tokens
        if not self._config.drops_hit_blocks:
            return (num_prompt - 1,)
        return max(0, (num_prompt - 1) // size * size - size), max(0, num_prompt // size * size - size)

    def begin_step(self) -> None:
        """Note that a step is being scheduled."""

    def chunk_end(self, request: Request, start: int, end: int) -> int:
        """Return where a chunk of tokens [start, end) has to end so that other requests can use its cached blocks."""
        return end

    def beside_table(self, request: Request) -> Hashable:
        """Return the facts that later steps of a request depend on and its table does not show; None for none."""
        return None

    def slots(self, request: Request, start: int, end: int) -> tuple[tuple[int, int, int], ...]:
        """Return the slots for the KV of tokens [start, end): (block_id, offset, length) per block.

        Position p at table[p // block_size], offset p % block_size.
        """
        table, size = request.block_tables[self.index], self.block_size
        if end - start == 1:
            return ((table[start // size], start % size, 1),)
        runs = []
        while start < end:
            offset = start % size
            length = size - offset if size - offset < end - start else end - start
            runs.append((table[start // size], offset, length))
            start += length
        return tuple(runs)

    # -- looking up ----------------------------------------------------------------------------------------------------

    def cached_run(self, request: Request, num_blocks: int) -> list[int]:
        """Return the cached blocks of the request's first num_blocks blocks, up to the first that is not cached."""
        run: list[int] = []
        ratio, group = self._hash_ratio, self.index
        mapped_to, blocks, is_equal = self._pool.prefix_map.get, self._pool.blocks, self._merge_policy.is_equal
        first = self.block_hashes(request, 0, 1)
        if not first or mapped_to((group, first[0])) is None:  # most misses end here, without further hashes
            return run
        links = range(ratio - 1, num_blocks * ratio, ratio)
        for link, block_hash in zip(links, self.block_hashes(request, 0, num_blocks), strict=False):
            mapped = mapped_to((group, block_hash))
            if mapped is None or not is_equal(blocks[mapped[0]], request, link):
                break
            run.append(mapped[0])
        return run

    def cached_block(self, request: Request, index: int) -> int | None:
        """Return the block that the cache serves for the request's full block `index`; None for a miss."""
        mapped = self._pool.prefix_map.get((self.index, self.block_hashes(request, index, index + 1)[0]))
        if mapped is None:
            return None
        block, link = self._pool.blocks[mapped[0]], (index + 1) * self._hash_ratio - 1
        return mapped[0] if self._merge_policy.is_equal(block, request, link) else None

    def block_hashes(self, request: Request, first: int, end: int) -> Sequence[bytes]:
        """Return the hashes of the request's full blocks [first, end): those of the chain at each block's end."""
        if (ratio := self._hash_ratio) == 1:
            return request.block_hashes[first:end]
        return request.block_hashes[(first + 1) * ratio - 1 : end * ratio : ratio]

    def tier_hashes(self, request: Request, first: int, end: int) -> Sequence[bytes]:
        """Return the hashes under which the external tier files full blocks [first, end): here those of the cache."""
        return self.block_hashes(request, first, end)

    # -- counting ------------------------------------------------------------------------------------------------------

    def num_missing_blocks(self, request: Request, num_tokens: int) -> int:
        """Return how many blocks the table lacks for num_tokens tokens: every computed token needs a slot for its KV.

        At decode, the token at position num_tokens - 1 has been sampled, and this step writes its KV: a block is
        missing if that position opens one (nano-vLLM PR 71 argues otherwise, and writes into the wrong block).
        """
        return -(-num_tokens // self.block_size) - len(request.block_tables[self.index])

    def num_blocks_to_admit(self, hit: Sequence[int], num_computed_tokens: int, num_blocks: int) -> int:
        """Return how many free blocks a table of num_blocks blocks takes if it starts with a hit.

        A hit on a free block costs a free block too; a hit that the window has passed costs nothing.
        """
        num_skipped = self.num_skipped_tokens(num_computed_tokens) // self.block_size
        blocks, null_block = self._pool.blocks, self._pool.null_block
        free_hits = sum(i != null_block and not blocks[i].ref_count for i in hit[num_skipped:])
        return max(num_blocks - max(num_skipped, len(hit)), 0) + free_hits

    def _num_blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    # -- tables --------------------------------------------------------------------------------------------------------

    def add_hit(self, request: Request, hit: Sequence[int], num_computed_tokens: int) -> None:
        """Start the request's table with cached blocks, each touched so that no allocation can take it.

        Blocks that will be outside the window after num_computed_tokens tokens stay untouched.
        """
        num_skipped = self.num_skipped_tokens(num_computed_tokens) // self.block_size
        self.start_table(request, hit[num_skipped:], num_skipped)
        self._set_registered(request, len(request.block_tables[self.index]))

    def start_table(self, request: Request, touched: Sequence[int], num_skipped: int, *, is_fork: bool = False) -> None:
        """Start a table with null entries and existing blocks, each touched."""
        self._pool.touch(touched)
        self.skip(request, num_skipped)
        self._extend_table(request.block_tables[self.index], touched)
        if BlockTouched in self._hooks:
            remaining = Counter(touched)  # a block that the hit names twice gets its references one after the other
            for index, block_id in enumerate(touched, num_skipped):
                remaining[block_id] -= 1
                ref_count = self._pool.blocks[block_id].ref_count - remaining[block_id]
                self._hooks.emit(BlockTouched(block_id, request.request_id, self.index, index, ref_count, is_fork))

    def skip(self, request: Request, num_entries: int) -> None:
        """Append num_entries null entries for blocks that no later token reads."""
        if num_entries <= 0:
            return
        if BlocksSkipped in self._hooks:
            self._hooks.emit(BlocksSkipped(request.request_id, self.index, num_entries))
        self._extend_table(request.block_tables[self.index], [self._pool.null_block] * num_entries)

    def add_external(self, request: Request, num_tokens: int) -> None:
        """Add blocks for tokens, up to num_tokens, that the external tier will fill; none outside the window."""
        if num_tokens > self.num_skipped_tokens(num_tokens):
            self.extend(request, num_tokens)

    def extend(self, request: Request, num_tokens: int) -> None:
        """Append fresh blocks until the table holds num_tokens tokens. The caller makes sure that enough are free.

        Raises NotGrantedError if they are not.
        """
        missing = self.num_missing_blocks(request, num_tokens)
        if missing <= 0:
            return
        table = request.block_tables[self.index]
        block_ids = self._take(request, missing)
        self._extend_table(table, block_ids)
        if BlockAllocated in self._hooks:
            for index, block_id in enumerate(block_ids, len(table) - missing):
                self._hooks.emit(BlockAllocated(block_id, request.request_id, self.index, index))

    def carry_over(self, request: Request, num_tokens: int) -> Sequence[BlockCopy]:
        """Return the copies to make, in this order, before a step computes up to num_tokens tokens. After `extend`."""
        return ()

    def _take(self, request: Request, num_blocks: int) -> list[int]:
        if num_blocks > (num_free := self._pool.num_free):
            raise NotGrantedError(
                request.request_id,
                f"request {request.request_id} needs {counted(num_blocks, 'block')}, but only {num_free} "
                f"{'is' if num_free == 1 else 'are'} free: not enough were counted when it was admitted or extended",
            )
        return self._pool.take(num_blocks)

    def drop_skipped(self, request: Request, num_computed_tokens: int) -> None:
        """Free the blocks that have left the window; their entries become null."""
        num_skipped = self.num_skipped_tokens(num_computed_tokens) // self.block_size
        if not num_skipped:
            return
        table, null_block = request.block_tables[self.index], self._pool.null_block
        last = min(num_skipped, len(table))
        first = last
        while first and table[first - 1] != null_block:
            first -= 1
        if first < last:
            indices = [first + index for index in islice(self.freeing_order(last - first), last - first)]
            dropped = [table[index] for index in indices]
            self._journal.record((table.__setitem__, slice(first, last), table[first:last]))
            table[first:last] = [null_block] * (last - first)
            self.release(request, dropped, indices, "window")

    def freeing_order(self, num_entries: int) -> Sequence[int]:
        """Return the indices of num_entries consecutive table entries, the first to be reused first.

        The last entry comes first, because a chain's tail is useless without its head.
        """
        return range(num_entries - 1, -1, -1)

    def free(self, request: Request, reason: FreeReason) -> None:
        """Free the whole table in the freeing order. It is emptied first, because no table may name a free block."""
        table = request.block_tables[self.index]
        if not table:
            return
        held, null_block = table[:], self._pool.null_block
        self._journal.record((table.extend, held))
        table.clear()
        indices = [*islice(self.freeing_order(len(held)), len(held))]
        if null_block in held:
            indices = [index for index in indices if held[index] != null_block]
        self.release(request, list(map(held.__getitem__, indices)), indices, reason)
        self._set_registered(request, 0)

    # -- forks ---------------------------------------------------------------------------------------------------------

    def num_shared_tokens(self, num_computed_tokens: int) -> int:
        """Return how many of a request's computed tokens a fork shares: all, even those in a partly filled last block.

        Equal tokens have equal KV, and a shared block is not written to.
        """
        return num_computed_tokens

    def add_shared(self, request: Request, parent: Request, num_tokens: int) -> None:
        """Start a fork's table with the blocks of the parent's first num_tokens tokens, adding a reference to each."""
        num_skipped = self.num_skipped_tokens(num_tokens) // self.block_size
        self.start_table(request, self.shared_blocks(parent, num_tokens)[num_skipped:], num_skipped, is_fork=True)
        registered = parent.num_registered_blocks[self.index]
        self._set_registered(request, min(registered, num_tokens // self.block_size))

    def shared_blocks(self, parent: Request, num_tokens: int) -> list[int]:
        """Return the blocks of the parent's first num_tokens tokens; null for those that the window has passed."""
        num_skipped = self.num_skipped_tokens(num_tokens) // self.block_size
        shared = parent.block_tables[self.index][num_skipped : self._num_blocks(num_tokens)]
        return [*[self._pool.null_block] * num_skipped, *shared]

    def entries_to_copy(self, request: Request, num_tokens: int) -> list[int]:
        """Return the table entries that need a copy before the tokens up to num_tokens are written to them."""
        table, null_block = request.block_tables[self.index], self._pool.null_block
        written = range(request.num_computed_tokens // self.block_size, min(self._num_blocks(num_tokens), len(table)))
        return [index for index in written if table[index] != null_block and self.copies_before_write(request, index)]

    def copies_before_write(self, request: Request, index: int) -> bool:
        """Return True for a block that another table also holds, which must not get this request's next tokens.

        The last holder writes in place.
        """
        return self._pool.blocks[request.block_tables[self.index][index]].ref_count > 1

    def copy(self, request: Request, index: int) -> BlockCopy:
        """Replace a shared block with a fresh one; return the copy to make. The caller makes sure that a block is free.

        The table is repointed before the reference is dropped. Raises NotGrantedError if no block is free.
        """
        table = request.block_tables[self.index]
        block_id, (into_block_id,) = table[index], self._take(request, 1)
        self._journal.record((table.__setitem__, index, block_id))
        table[index] = into_block_id
        copied = BlockCopy(self.index, block_id, into_block_id, request.request_id, index)
        if BlockCopied in self._hooks:
            self._hooks.emit(
                BlockCopied(block_id, into_block_id, request.request_id, self.index, index, is_pinned=False)
            )
        self.release(request, [block_id], [index], "copied")
        return copied

    # -- cached content ------------------------------------------------------------------------------------------------

    def register(self, request: Request, num_tokens: int) -> None:
        """Register the hashes of the blocks that the request's first num_tokens tokens fill, merging duplicates."""
        first, last = request.num_registered_blocks[self.index], num_tokens // self.block_size
        if last <= first:
            return
        if last == first + 1 or not self._register_new(request, first, last):
            table, null_block = request.block_tables[self.index], self._pool.null_block
            caches_every_block = self.caches_every_block
            for index in range(first, last):
                if table[index] != null_block and (caches_every_block or self.is_worth_caching(request, index)):
                    self.register_block(request, index)
        self._set_registered(request, last)

    def _register_new(self, request: Request, first: int, last: int) -> bool:
        """Register several full blocks [first, last) at once if nothing has to be decided or told one by one.

        Return False, with nothing changed, if a hash is known, a block has content or is null, a method is overridden,
        or events are heard.
        """
        pool, block_ids = self._pool, request.block_tables[self.index][first:last]
        if BlockCached in self._hooks or not self.caches_every_block or pool.null_block in block_ids:
            return False
        if not (is_own(self.register_block, KVCacheGroup.register_block) and is_own(pool.register, BlockPool.register)):
            return False
        ratio = self._hash_ratio
        request.prefix_at(last * ratio - 1)
        return pool.register_new(
            [pool.blocks[block_id] for block_id in block_ids],
            [(self.index, block_hash) for block_hash in self.block_hashes(request, first, last)],
            self._token_ids(request, first, last),
            request.prefixes[(first + 1) * ratio - 1 : last * ratio : ratio],
            map(self._merge_policy.mapped_after, repeat(()), block_ids),
        )

    def _token_ids(self, request: Request, first: int, last: int) -> Sequence[tuple[int, ...]]:
        """Return the tokens of each of the full blocks [first, last)."""
        if self._hash_ratio == 1 and not request.images:
            return request.links[first:last]  # type: ignore[return-value]  # links without keys are tokens
        size = self.block_size
        return [tuple(request.token_ids[index * size : (index + 1) * size]) for index in range(first, last)]

    def register_block(self, request: Request, index: int) -> None:
        """Merge a full block into an equal one if the policy names one; otherwise register its hash."""
        link = (index + 1) * self._hash_ratio - 1
        key = (self.index, self.block_hashes(request, index, index + 1)[0])
        block = self._pool.blocks[request.block_tables[self.index][index]]
        mapped = self._pool.prefix_map.get(key, ())
        if mapped:
            found = [self._pool.blocks[i] for i in mapped]
            target = self._merge_policy.merge_target(found, block, request, link)
            if target is not None:
                self.merge(request, index, block.block_id, target.block_id)
                return
        if block.keys:  # of a shorter prefix: the tail of a prompt that ended inside this block
            self._pool.evict(block, "replaced")
        mapped = self._merge_policy.mapped_after(mapped, block.block_id)
        (token_ids,) = self._token_ids(request, index, index + 1)
        self._pool.register(block, key, token_ids, request.prefix_at(link), mapped)
        if BlockCached in self._hooks:
            self._hooks.emit(BlockCached(block.block_id, request.request_id, self.index, index, key[1], mapped))

    def merge(self, request: Request, index: int, block_id: int, into_block_id: int) -> None:
        """Repoint the table entry, then free the copy: otherwise the entry would point at a reusable block."""
        self._pool.share(self._pool.blocks[into_block_id])
        table = request.block_tables[self.index]
        self._journal.record((table.__setitem__, index, block_id))
        table[index] = into_block_id
        if BlockMerged in self._hooks:
            ref_count = self._pool.blocks[into_block_id].ref_count
            self._hooks.emit(BlockMerged(block_id, into_block_id, request.request_id, self.index, index, ref_count))
        self.release(request, [block_id], [index], "merged")

    # -- mutations -----------------------------------------------------------------------------------------------------

    def release(self, request: Request, block_ids: Sequence[int], indices: Sequence[int], reason: FreeReason) -> None:
        """Drop the references of removed table entries; no table may name a free block."""
        try:
            head, tail = self._pool.release(block_ids)
        except FreedTwiceError as error:
            error.request_id = request.request_id
            raise
        if BlockFreed not in self._hooks:
            return
        ends: dict[int, QueueEnd] = dict.fromkeys(tail, "tail")
        ends |= dict.fromkeys(head, "head")
        entries = dict(zip(block_ids, indices, strict=True))
        if len(entries) < len(block_ids):
            self._emit_repeated(request, block_ids, indices, reason)
            block_ids = [*dict.fromkeys(reversed(block_ids))][::-1]  # each is freed with its last reference
        # Blocks at the head are emitted in reverse, so that putting each in front gives the right order.
        for block_id in (*(i for i in block_ids if ends.get(i) != "head"), *reversed(head)):
            ref_count = self._pool.blocks[block_id].ref_count
            end = ends.get(block_id)
            self._hooks.emit(
                BlockFreed(block_id, request.request_id, self.index, entries[block_id], ref_count, end, reason)
            )

    def _emit_repeated(
        self, request: Request, block_ids: Sequence[int], indices: Sequence[int], reason: FreeReason
    ) -> None:
        """Emit BlockFreed for all but the last reference to each block that the table names several times."""
        remaining = Counter(block_ids)
        for block_id, index in zip(block_ids, indices, strict=True):
            remaining[block_id] -= 1
            if left := remaining[block_id]:
                ref_count = self._pool.blocks[block_id].ref_count + left
                self._hooks.emit(BlockFreed(block_id, request.request_id, self.index, index, ref_count, None, reason))

    def _extend_table(self, table: list[int], block_ids: Sequence[int]) -> None:
        self._journal.record((table.__delitem__, slice(len(table), None)))
        table.extend(block_ids)

    def _set_registered(self, request: Request, num_blocks: int) -> None:
        registered = request.num_registered_blocks
        self._journal.record((registered.__setitem__, self.index, registered[self.index]))
        registered[self.index] = num_blocks
