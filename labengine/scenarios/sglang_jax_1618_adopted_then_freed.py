"""sglang-jax issue 1618: the cache adopts a request's slots, and the request then frees them as duplicates.

A node whose device copy is gone (a tombstone) is found, revived with the request's own slots, and counted into the
prefix that "was there already". In this core a tombstone is a map entry whose block is free: there is no host copy, as
in HiCache.
"""

from __future__ import annotations

from labengine.core.full_attention import FullAttentionGroup
from labengine.core.request import Request
from labengine.lab import Lab
from labengine.scenarios.counts import num_misread_requests, num_rules
from labengine.scenarios.scenario import Column, Scenario


class FreesWhatWasAdopted(FullAttentionGroup):
    """The order of the report: insert, then free as many blocks as the insert found."""

    def register_block(self, request: Request, index: int) -> None:
        """Register the block; if its hash was in the map, free the request's block as a duplicate, adopted or not."""
        table, (block_hash,) = request.block_tables[self.index], self.block_hashes(request, index, index + 1)
        key = (self.index, block_hash)
        block_id, was_there = table[index], key in self._pool.prefix_map
        super().register_block(request, index)
        if was_there and table[index] == block_id:
            self.release(request, [block_id], [index], "merged")


class AdoptedThenFreed(Scenario):
    """A and B are equal; A ends in the step in which B's blocks are registered: A's entries lead to free blocks."""

    columns = (Column("nano-vllm+243", FreesWhatWasAdopted), Column("nano-vllm+243"))
    figures = {
        "rules broken": num_rules,
        "requests that misread": num_misread_requests,
    }

    def play(self, lab: Lab) -> None:
        """Run A and B for a step; C's first step; and a step in which B reads."""
        for max_tokens in (1, 6):
            lab.add(token_ids=range(1, 10), max_tokens=max_tokens)
        lab.step()
        lab.add(token_ids=range(101, 126), max_tokens=4)
        lab.step(2)
