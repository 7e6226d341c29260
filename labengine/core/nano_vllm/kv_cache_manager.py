"""The managers of nano-vLLM: the place of a decoded token, and the moment at which a block's hash is registered."""

from __future__ import annotations

from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.kv_cache_manager import KVCacheManager, Moment
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.core.step_plan import SlotRun


class NanoKVCacheManager(KVCacheManager):
    """nano-vLLM's manager: the decode slot is in the last block."""

    def slot_runs(self, request: Request, start: int, end: int, group: KVCacheGroup) -> tuple[SlotRun, ...]:
        """Put a decoded token into the table's last block, at the offset of the request's last token."""
        if end - start == 1 and end == request.num_tokens and request.num_generated_tokens:
            return ((request.block_tables[group.index][-1], (request.num_tokens - 1) % group.block_size, 1),)
        return super().slot_runs(request, start, end, group)


class EarlyHashManager(NanoKVCacheManager):
    """Registers a block when the step that fills it is scheduled: equal prompts share it within that step."""

    needs_tokens_to_allocate = True

    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: Moment) -> int:
        """Return all allocated tokens, whose KV the forward pass writes before any request reads it."""
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
        """Continue the chain; at decode, from the hash under which the block before is now registered."""
        hashes, size = request.block_hashes, self._config.hash_block_size
        if hashes and request.has_blocks and num_tokens >= (len(hashes) + 1) * size:
            index = len(hashes) * size // self.groups[0].block_size - 1
            before = self.pool.blocks[request.block_tables[0][index]]
            self._journal.record((request.links.__delitem__, slice(len(hashes), None)))
            self._journal.record((hashes.__setitem__, slice(len(hashes) - 1, None), hashes[-1:]))
            hashes[-1] = before.keys[0][1]
        super().extend_hashes(request, num_tokens)
