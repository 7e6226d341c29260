"""One decision taken wrong, each as some engine once took it: what the checks have to find."""

from __future__ import annotations

from collections.abc import Sequence

from fake_tier import FakeTier
from labengine.core.block import Block
from labengine.core.connector import BlockTransfer, LocalHit
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.hash_chain import HashChain
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.merge_policy import LateMerge
from labengine.core.nano_vllm.kv_cache_manager import NanoKVCacheManager
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.core.sliding_window import SlidingWindowGroup


class GroupAfterGroup(KVCacheManager):
    """Takes fresh blocks for one group before the next group has touched its hits (vLLM PR 44409)."""

    def allocate_computed(self, request: Request, hit: Hit, num_external: int) -> None:
        num_computed = hit.num_tokens + num_external
        for group, block_ids in zip(self.groups, hit.block_ids, strict=True):
            group.add_hit(request, block_ids, num_computed)
            if num_external:
                group.add_external(request, num_computed)


class TrustingTier(FakeTier):
    """Does not ask whether a hit block still holds what was found in it."""

    def update_state_after_alloc(
        self, request: Request, transfers: Sequence[BlockTransfer], hits: Sequence[LocalHit] = ()
    ) -> Sequence[BlockTransfer]:
        return transfers


class FreesWithoutRepointing(FullAttentionGroup):
    """Frees the duplicate, and leaves the table as it is (mini-sglang PR 142)."""

    def merge(self, request: Request, index: int, block_id: int, into_block_id: int) -> None:
        self.release(request, [block_id], [index], "merged")


class MergesIntoTheDead(LateMerge):
    """Merges into any block that the map names (the check that nano-vLLM PR 243 has)."""

    def is_alive(self, other: Block) -> bool:
        return True


class RestartsTheChain(NanoKVCacheManager):
    """A hit on a free block clears its hash, and the next block is hashed as a first one (nano-vLLM f64d821)."""

    def allocate_computed(self, request: Request, hit: Hit, num_external: int) -> None:
        (block_ids,) = hit.block_ids
        resurrected = [i for i in block_ids if not self.pool.blocks[i].ref_count]
        super().allocate_computed(request, hit, num_external)
        self.pool.evict_cached(resurrected, "reused")
        if block_ids[-1] in resurrected:
            parent_hash = b""
            for link in range(len(block_ids), len(request.block_hashes)):
                parent_hash = request.block_hashes[link] = self._hash_chain.link(parent_hash, request.links[link])


class AppendsABlockEarly(FullAttentionGroup):
    """Appends at len % block_size == 0 instead of 1 (nano-vLLM PR 71); the slot is taken from the last block."""

    def num_missing_blocks(self, request: Request, num_tokens: int) -> int:
        if request.num_generated_tokens and request.has_blocks:
            return int(num_tokens % self.block_size == 0)
        return super().num_missing_blocks(request, num_tokens)


class SixBitHashChain(HashChain):
    """64 hashes for all content there is."""

    def link(self, parent_hash: bytes, token_ids: Sequence[int]) -> bytes:
        return bytes([super().link(parent_hash, token_ids)[0] % 64])


class FreesABlockEarly(SlidingWindowGroup):
    """Lets the window end one block too soon."""

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        return super().num_skipped_tokens(num_computed_tokens + self.block_size)


INTERLEAVED = Parts(kv_cache_manager=GroupAfterGroup)
NO_REMAP = Parts(full_attention_group=FreesWithoutRepointing)
NOT_ALIVE = Parts(merge_policy=MergesIntoTheDead)
CHAIN_RESTART = Parts(kv_cache_manager=RestartsTheChain)
SLOT_RULE_71 = Parts(full_attention_group=AppendsABlockEarly)
SIX_BITS = Parts(hash_chain=SixBitHashChain)
EARLY_WINDOW = Parts(sliding_window_group=FreesABlockEarly)
