"""The decisions that vLLM 44409 is about, one method each: the order it mends, and the rivals it was preferred to."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.connector import BlockTransfer, LocalHit
from labengine.core.editions import VLLM, VllmKVCacheManager
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.engine.external.host import HostStore


class InterleavedKVCacheManager(VllmKVCacheManager):
    """As it was before: each group takes its hits and its fresh blocks, then comes the next group."""

    def allocate_computed(self, request: Request, hit: Hit, num_external: int) -> None:
        """The hits of later groups still lie in the free queue while a group takes fresh blocks off its head."""
        num_computed = hit.num_tokens + num_external
        for group, block_ids in zip(self.groups, hit.block_ids, strict=True):
            group.add_hit(request, block_ids, num_computed)
            if num_external:
                group.add_external(request, num_computed)


class BulkTouchKVCacheManager(VllmKVCacheManager):
    """Pull request 33775, as the one that took its place tells of it: touch all hits of all groups in bulk.

    The tables then begin with those of them that lie inside the window, as ever.
    """

    def allocate_computed(self, request: Request, hit: Hit, num_external: int) -> None:
        """The hits that the window will skip are touched too: no table holds them, so nobody will ever let go."""
        num_computed = hit.num_tokens + num_external
        for group, block_ids in zip(self.groups, hit.block_ids, strict=True):
            num_skipped = group.num_skipped_tokens(num_computed) // group.block_size
            self.pool.touch([block_id for block_id in block_ids[:num_skipped] if block_id != self.pool.null_block])
        super().allocate_computed(request, hit, num_external)


class UnguardedStore(HostStore):
    """A tier that fills the blocks it is given and asks no questions: what goes wrong then goes wrong silently."""

    def update_state_after_alloc(
        self, request: Request, transfers: Sequence[BlockTransfer], hits: Sequence[LocalHit] = ()
    ) -> Sequence[BlockTransfer]:
        """No block is looked at."""
        return transfers


class ClampedStore(HostStore):
    """Pull request 44329, by its description: where the assert of issue 43884 stood, believe less.

    From the first hit block that lost its content on, in whatever group, nothing counts as local any more, and all of
    it is loaded: the shortest of the groups decides for all. (The groups here have blocks of one size.)
    """

    def update_state_after_alloc(
        self, request: Request, transfers: Sequence[BlockTransfer], hits: Sequence[LocalHit] = ()
    ) -> Sequence[BlockTransfer]:
        """The block tables stay as they are: two groups' content is loaded into one block."""
        first_lost = min((hit.transfer.index for hit in hits if not hit.is_intact), default=None)
        if first_lost is None:
            return transfers
        again = [hit.transfer for hit in hits if hit.transfer.index >= first_lost]
        return sorted([*again, *transfers], key=lambda transfer: (transfer.group, transfer.index))


INTERLEAVED = Parts(name="vllm, interleaved", kv_cache_manager=InterleavedKVCacheManager).overriding(VLLM)
BULK_TOUCH = Parts(name="vllm, bulk touch", kv_cache_manager=BulkTouchKVCacheManager).overriding(VLLM)
