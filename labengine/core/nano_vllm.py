"""Decisions of nano-vLLM that differ from the production classes, and those of July 2025 (commit 38baf0b).

The older version hashes at allocation, computes complete prompts, and has a map that never forgets: an entry stays
when its block is reused, and a look-up compares the own tokens of a block but not those before them. So an old entry
can lead to a block that holds the same tokens after another prefix, and the request then reads another request's KV.
(Upstream drops such entries since pull request 218.)
"""

from __future__ import annotations

from collections.abc import Sequence

from labengine.config import ConfigError, EngineConfig
from labengine.core.block import Block, Key, Prefix
from labengine.core.block_pool import BlockPool
from labengine.core.connector import Connector
from labengine.core.free_queue import FreeQueue
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.journal import Journal
from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.kv_cache_manager import KVCacheManager, Moment
from labengine.core.prefill_first import PrefillFirstScheduler
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.core.scheduler import NOT_ADMITTED, Admission
from labengine.core.step_plan import SlotRun
from labengine.events import BlockCached, EvictReason
from labengine.record.hooks import Hooks


class NanoBlockPool(BlockPool):
    """nano-vLLM's pool: one order for all freed blocks."""

    def reused_first(self, block_ids: list[int]) -> list[int]:
        """Return no block: every freed block goes to the tail, with or without content."""
        return []


class NanoKVCacheManager(KVCacheManager):
    """nano-vLLM's manager: the decode slot is in the last block."""

    def slot_runs(self, request: Request, start: int, end: int, group: KVCacheGroup) -> tuple[SlotRun, ...]:
        """Put a decoded token into the table's last block, at the offset of the request's last token."""
        if end - start == 1 and end == request.num_tokens and request.num_generated_tokens:
            return ((request.block_tables[group.index][-1], (request.num_tokens - 1) % group.block_size, 1),)
        return super().slot_runs(request, start, end, group)


class UnchunkedScheduler(PrefillFirstScheduler):
    """No prompt is cut into chunks: a step admits a request only if its whole length fits the budget."""

    def refuse_what_it_lacks(self, config: EngineConfig, connector: Connector | None) -> None:
        """Raise ConfigError unless there is one group whose block size is the hash_block_size."""
        super().refuse_what_it_lacks(config, connector)
        if len(config.groups) > 1 or config.hash_block_size != config.groups[0].block_size:
            raise ConfigError("this edition has one KV-cache group, and its hash_block_size is the block size")

    def refuse_what_never_fits(self, request: Request) -> None:
        """Raise ConfigError also for a request longer than a step: it would wait for ever and block those behind it."""
        super().refuse_what_never_fits(request)
        limit = self.config.max_num_batched_tokens
        if request.max_kv_tokens > limit:
            raise ConfigError(
                f"this edition computes a prompt in one step: {request.num_prompt_tokens} tokens with "
                f"max_tokens={request.sampling.max_tokens} (after a preemption all are computed again) need "
                f"max_num_batched_tokens={request.max_kv_tokens} or more, and it is {limit}"
            )

    def admit(self, request: Request, limit: int, *, is_first: bool) -> Admission:
        """Admit the request if all its tokens fit the budget; charge only those that the cache does not have."""
        if request.num_tokens > limit:
            return NOT_ADMITTED
        hit = self.manager.find_prefix(request)
        if not self.manager.can_admit(request, hit):
            return NOT_ADMITTED
        self._give_blocks(request, hit)
        return request.num_tokens - hit.num_tokens


class EarlyHashManager(NanoKVCacheManager):
    """Registers a block when the step that fills it is scheduled: equal prompts share it within that step."""

    needs_tokens_to_allocate = True

    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: Moment) -> int:
        """Return all allocated tokens: the forward pass writes their KV before any request reads it."""
        return num_tokens

    def can_admit(self, request: Request, hit: Hit, num_external: int = 0, num_spare: int = 0) -> bool:
        """Return True if the complete prompt fits, as if none of it were cached."""
        return self.num_blocks_needed(request.num_tokens) <= self.pool.num_free

    def find_prefix(self, request: Request) -> Hit:
        """Return the longest hit, possibly the complete prompt.

        Nothing is left to compute then, and the next token comes from the logits of the request before it in the batch
        (nano-vLLM issue 114).
        """
        if request.sampling.skip_reading_prefix_cache:
            return Hit(0, ((),))
        request.block_hashes.clear()
        request.links.clear()
        self.extend_hashes(request, request.num_tokens)
        return self.longest_hit(request, request.num_tokens)

    def extend_hashes(self, request: Request, num_tokens: int) -> None:
        """Continue the chain; at decode from the hash under which the block before is registered now."""
        hashes, size = request.block_hashes, self._config.hash_block_size
        if hashes and request.has_blocks and num_tokens >= (len(hashes) + 1) * size:
            index = len(hashes) * size // self.groups[0].block_size - 1
            before = self.pool.blocks[request.block_tables[0][index]]
            self._journal.record((request.links.__delitem__, slice(len(hashes), None)))
            self._journal.record((hashes.__setitem__, slice(len(hashes) - 1, None), hashes[-1:]))
            hashes[-1] = before.keys[0][1]
        super().extend_hashes(request, num_tokens)


class StaleMapPool(NanoBlockPool):
    """A map whose entries outlive the content: `stale` holds those whose block has other content by now."""

    def __init__(self, num_blocks: int, free_queue: FreeQueue, hooks: Hooks, journal: Journal) -> None:
        super().__init__(num_blocks, free_queue, hooks, journal)
        self.stale: dict[Key, int] = {}

    def register(
        self, block: Block, key: Key, token_ids: tuple[int, ...], prefix: Prefix, mapped: tuple[int, ...]
    ) -> None:
        """Register the block; a new entry takes the place of a stale one."""
        if key in self.stale:
            self._journal.record((self.stale.__setitem__, key, self.stale.pop(key)))
        super().register(block, key, token_ids, prefix, mapped)

    def evict(self, block: Block, reason: EvictReason = "reused") -> None:
        """Forget the block's content, but keep the map's entry."""
        for key in block.keys:
            if self.prefix_map.get(key) == (block.block_id,):
                self._journal.record((self.stale.__delitem__, key))
                self.stale[key] = block.block_id
        super().evict(block, reason)


class OwnTokensGroup(FullAttentionGroup):
    """A hit is a block that the map names and whose own tokens are equal, after any prefix."""

    _pool: StaleMapPool

    def cached_run(self, request: Request, num_blocks: int) -> list[int]:
        """Return the blocks that the map serves one after the other, stale entries included."""
        run: list[int] = []
        for index in range(num_blocks):
            block_id = self.cached_block(request, index)
            if block_id is None:
                break
            run.append(block_id)
        return run

    def cached_block(self, request: Request, index: int) -> int | None:
        """Return the block served, also by a stale entry, if the block's own tokens are equal."""
        block_id = self._pool.stale.get((self.index, self.block_hashes(request, index, index + 1)[0]))
        if block_id is None:
            return super().cached_block(request, index)
        block = self._pool.blocks[block_id]
        return block_id if self._merge_policy.is_equal(block, request, self._link(index)) else None

    def add_hit(self, request: Request, hit: Sequence[int], num_computed_tokens: int) -> None:
        """Add the hit, and register each block under the request's hash."""
        super().add_hit(request, hit, num_computed_tokens)
        for index, block_id in enumerate(hit):
            self._name_anew(request, index, self._pool.blocks[block_id])

    def _name_anew(self, request: Request, index: int, block: Block) -> None:
        link, table_entry = self._link(index), (block.block_id, request.request_id, self.index, index)
        key = (self.index, self.block_hashes(request, index, index + 1)[0])
        token_ids, mapped = block.token_ids, (block.block_id,)
        if block.keys == (key,):
            return
        self._pool.evict(block, "replaced")
        self._pool.register(block, key, token_ids, request.prefix_at(link), mapped)
        if BlockCached in self._hooks:
            self._hooks.emit(BlockCached(*table_entry, key[1], mapped))

    def _link(self, index: int) -> int:
        """Return the link of the hash chain that a block ends with."""
        return (index + 1) * self._hash_ratio - 1
