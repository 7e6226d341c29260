"""sglang-jax issue 1618: the cache adopts a request's slots, and the request then frees them as duplicates.

A node whose device copy is gone (a tombstone) is found, revived with the request's own slots, and counted as part of
the prefix that "was there already". In this core a tombstone is a map entry whose block is free; unlike HiCache, it has
no host copy.
"""

from __future__ import annotations

from labengine.core.full_attention import FullAttentionGroup
from labengine.core.request import Request
from labengine.lab import Lab
from labengine.scenarios.counts import num_misread_requests, num_rules
from labengine.scenarios.scenario import Column, Scenario


class FreesWhatWasAdopted(FullAttentionGroup):
    """The reported order: insert, then free as many blocks as the insert found."""

    def register_block(self, request: Request, index: int) -> None:
        """Register the block; if its hash was in the map, free the block as a duplicate, even if it was adopted."""
        table, (block_hash,) = request.block_tables[self.index], self.block_hashes(request, index, index + 1)
        key = (self.index, block_hash)
        block_id, was_there = table[index], key in self._pool.prefix_map
        super().register_block(request, index)
        if was_there and table[index] == block_id:
            self.release(request, [block_id], [index], "merged")


class AdoptedThenFreed(Scenario):
    """A and B are equal; A ends in the step that registers B's blocks, so A's entries lead to free blocks."""

    columns = (Column("nano-vllm+243", FreesWhatWasAdopted), Column("nano-vllm+243"))
    figures = {
        "rules broken": num_rules,
        "requests that misread": num_misread_requests,
    }

    def play(self, lab: Lab) -> None:
        """Run A and B for a step, then C's first step, and then a step in which B reads."""
        for max_tokens in (1, 6):
            lab.add(token_ids=range(1, 10), max_tokens=max_tokens)
        lab.step()
        lab.add(token_ids=range(101, 126), max_tokens=4)
        lab.step(2)
