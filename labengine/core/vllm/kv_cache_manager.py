"""vLLM's manager: slots for the drafter's KV, checkpoints, and early registration of hashes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from labengine.core.block import BlockCopy
from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.kv_cache_manager import KVCacheManager, Moment
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.core.vllm.checkpoints import CheckpointGroup
from labengine.core.vllm.drafts import num_read_ahead
from labengine.core.vllm.prefix_lookup import may_end_inside
from labengine.events import BlockUnpinned, QueueEnd


class VllmKVCacheManager(KVCacheManager):
    """vLLM's manager.

    It registers hashes early: the step that allocates a block computes it before any other request reads it. It keeps
    slots after a step's tokens, in which the drafter writes KV while guessing, and tells the groups with checkpoints
    each chunk's tokens, because a chunk's blocks depend on where it begins.
    """

    needs_tokens_to_allocate = True
    keeps_lookahead = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._checkpointed = [
            group
            for group in self.groups
            if isinstance(group, CheckpointGroup) and group.spec.checkpoint_alignment is not None
        ]

    def num_slots(self, request: Request, num_tokens: int) -> int:
        """Return num_tokens plus the drafter's slots, up to max_model_len; without these while KV is being loaded."""
        config, num_lookahead = self._config, self.num_lookahead
        if num_lookahead is None:
            num_lookahead = 0 if config.drafter == "lookup" or request.is_loading else config.num_drafts
        return min(num_tokens + num_lookahead, config.max_model_len or num_tokens + num_lookahead)

    def take_copies(self) -> tuple[BlockCopy, ...]:
        """Return the copies of this step, and drop the references that have kept their blocks, group by group."""
        copies = super().take_copies()
        pinned = sorted((copy for copy in copies if copy.is_pinned), key=lambda copy: copy.group)
        if pinned:
            self.unpin([block_id for copy in pinned for block_id in (copy.block_id, copy.into_block_id)])
        return copies

    def unpin(self, block_ids: Sequence[int]) -> None:
        """Drop, for each block, one reference that no table holds."""
        head, tail = self.pool.release(block_ids)
        if BlockUnpinned not in self._hooks:
            return
        left = Counter(block_ids)
        ends: dict[int, QueueEnd] = dict.fromkeys(tail, "tail")
        ends |= dict.fromkeys(head, "head")
        for block_id in block_ids:
            left[block_id] -= 1
            if left[block_id] or block_id not in ends:
                self._emit_unpinned(block_id, self.pool.blocks[block_id].ref_count + left[block_id], None)
        for block_id in (*tail, *reversed(head)):  # this order leaves the head of the queue right
            self._emit_unpinned(block_id, 0, ends[block_id])

    def _emit_unpinned(self, block_id: int, ref_count: int, end: QueueEnd | None) -> None:
        self._hooks.emit(BlockUnpinned(block_id, ref_count, end))

    def num_cacheable_tokens(self, group: KVCacheGroup, num_tokens: int) -> int:
        """Return one more block if hits drop their last block, which has to be found first.

        Tokens that several modules of MTP read ahead may be computed again, so they are not final.
        """
        num_final = max(0, num_tokens - max(0, num_read_ahead(self._config) - 1))
        if len(self.groups) == 1:
            return num_final
        aligned = super().num_cacheable_tokens(group, num_tokens)
        if not aligned or not group.drops_last_block:
            return aligned
        return min(num_final, super().num_cacheable_tokens(group, num_final) + group.block_size)

    def num_blocks_needed(self, num_tokens: int) -> int:
        """Return one more block per group whose hits may end inside a block: the request holds it and its copy.

        vLLM 0.32 never admits a request that fits only without such a hit, nor any request behind it.
        """
        return super().num_blocks_needed(num_tokens) + sum(map(may_end_inside, self.groups))

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def can_admit(self, request: Request, hit: Hit, num_external: int = 0, num_spare: int = 0) -> bool:
        """Count a checkpoint of the whole request as if it were one chunk."""
        for group in self._checkpointed:
            group.count_chunk(request, hit.num_tokens + num_external, request.num_tokens)
        return super().can_admit(request, hit, num_external, num_spare)

    def admit(self, request: Request, hit: Hit, num_tokens: int, num_external: int = 0, *, num_spare: int = 0) -> bool:
        """Count a checkpoint of the first chunk."""
        for group in self._checkpointed:
            group.begin_chunk(request, hit.num_tokens + num_external, num_tokens)
        return super().admit(request, hit, num_tokens, num_external, num_spare=num_spare)

    def allocate(self, request: Request, num_tokens: int) -> bool:
        """Count a checkpoint of the next chunk."""
        for group in self._checkpointed:
            group.begin_chunk(request, request.next_position, num_tokens)
        return super().allocate(request, num_tokens)

    def checkpoint(self, request: Request) -> int:
        """Return after how many tokens a request's newest chunk leaves a state inside it; 0 for none."""
        for group in self._checkpointed:
            if (checkpoint := group.checkpoint(request)) is not None:
                return checkpoint.num_tokens
        return 0

    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: Moment) -> int:
        """Return all allocated tokens. Tokens that the external tier loads late count once they have arrived."""
        return min(num_tokens, request.num_tokens)
