"""vLLM's full attention: a prompt that ends inside a block is registered up to there."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.full_attention import FullAttentionGroup
from labengine.core.kv_cache_group import GroupHit, KVCacheGroup
from labengine.core.request import Request
from labengine.core.vllm.partial_hits import PartialHits


class PromptTailGroup(PartialHits, FullAttentionGroup):
    """Also registers the end of a prompt inside a block larger than a link of the hash chain, as vLLM does.

    If hits never end inside a block, no look-up finds that key. It still marks the block as cached, and so decides the
    block's place in the queue when it is freed.
    """

    def find_partial_hit(
        self, request: Request, max_tokens: int, siblings: Sequence[KVCacheGroup], *, drops: bool
    ) -> tuple[int, GroupHit]:
        """Return the run of full blocks, and the next block up to the last link registered inside it."""
        runs = [group.cached_run(request, max_tokens // self.block_size) for group in siblings]
        length, ratio, link_size = min(map(len, runs)), self._hash_ratio, self.hit_unit
        for run in runs:
            del run[length:]
        num_tokens = length * self.block_size
        end = min((length + 1) * ratio - 1, max_tokens // link_size, len(request.block_hashes))
        for link in range(end - 1, length * ratio - 1, -1):
            if (found := self.cached_up_to(request, link, siblings)) is not None:
                for run, block_id in zip(runs, found, strict=True):
                    run.append(block_id)
                num_tokens = (link + 1) * link_size
                break
        if drops and num_tokens:
            num_tokens -= min(link_size, self.block_size)
        for run in runs:
            del run[-(-num_tokens // self.block_size) :]
        return num_tokens, runs

    def register(self, request: Request, num_tokens: int) -> None:
        """Register full blocks, then the prompt's tail."""
        super().register(request, num_tokens)
        link_size = self._config.hash_block_size
        # A hit leaves the last token to compute; one that drops its last block considers all tokens.
        end = (request.num_prompt_tokens - (not self.drops_last_block)) // link_size * link_size
        index = end // self.block_size
        if 0 < end <= num_tokens and end % self.block_size and index < len(request.block_tables[self.index]):
            self.register_tail(request, index, end // link_size - 1)
