"""nano-vLLM commit f64d821, on a branch and fixed an hour later: a hit on a free block restarts the hash chain.

A cached block that was hit while free was taken like a fresh one: its hash was reset. The next block's hash continues
from the hash of the block before it, which was missing, so it was hashed as if it came first.
"""

from __future__ import annotations

from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.nano_vllm.kv_cache_manager import NanoKVCacheManager
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.lab import Lab
from labengine.scenarios.counts import num_hit_tokens, num_misread_requests
from labengine.scenarios.scenario import Column, Scenario


class _ForgetsFreeHits(KVCacheManager):
    def allocate_computed(self, request: Request, hit: Hit, num_external: int) -> None:
        """Forget the content of hit blocks that are free; the chain restarts after such a block."""
        (hit_ids,) = hit.block_ids
        free = [block_id for block_id in hit_ids if not self.pool.blocks[block_id].ref_count]
        self.pool.evict_cached(free, "reused")
        super().allocate_computed(request, hit, num_external)
        if hit_ids and hit_ids[-1] in free:
            self._journal.record((setattr, request, "block_hashes", request.block_hashes[:]))
            block_hash, size = b"", self._config.hash_block_size
            for link in range(len(hit_ids), len(request.links)):
                token_ids = request.token_ids[link * size : (link + 1) * size]
                request.block_hashes[link] = block_hash = self._hash_chain.link(block_hash, token_ids)


class RestartsTheChain(_ForgetsFreeHits, NanoKVCacheManager):
    """nano-vLLM's manager as it was on a branch for an hour."""


class RestartsTheChainToo(_ForgetsFreeHits):
    """labengine's manager with the same defect."""


class ChainRestart(Scenario):
    """Three prompts, each run alone: X and one token; X, Y and one token; Y and one token."""

    columns = (Column("nano-vllm", RestartsTheChain), Column("nano-vllm"), Column("labengine", RestartsTheChainToo))
    figures = {
        "tokens that X|Y|z finds": lambda lab: num_hit_tokens(lab, 1),
        "tokens that Y|z finds": lambda lab: num_hit_tokens(lab, 2),
        "requests that misread": num_misread_requests,
    }

    def play(self, lab: Lab) -> None:
        """Run the three prompts one after the other."""
        x, y, z = [1] * 4, [2] * 4, [3]
        for prompt in (x + z, x + y + z, y + z):
            lab.generate([prompt], max_tokens=1)
