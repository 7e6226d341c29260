"""sglang-jax issue 1618: the cache adopts a request's slots, and the request then frees them as duplicates.

A node whose device copy is gone (a tombstone) is found, revived with the request's own slots, and counted into the
prefix that "was there already". In this core a tombstone is a map entry whose block is free: there is no host copy, as
in HiCache.
"""

from __future__ import annotations

from labengine.core.editions import NANO_VLLM_243
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.parts import Parts
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


BROKEN = Column(
    "adopted, then freed",
    Parts(name="nano-vllm+243, adopted, then freed", full_attention_group=FreesWhatWasAdopted).overriding(
        NANO_VLLM_243
    ),
    "Frees every block whose hash was found, also one that the cache has just taken over.",
)
FIXED = Column("adopted", "nano-vllm+243", "Frees a block only if another one takes its place in the table.")


class AdoptedThenFreed(Scenario):
    """A and B are equal; A ends in the step in which B's blocks are registered: A's entries lead to free blocks."""

    columns = (BROKEN, FIXED)

    def play(self, lab: Lab) -> None:
        """Run A and B for a step; C's first step; and a step in which B reads."""
        for max_tokens in (1, 6):
            lab.add(token_ids=range(1, 10), max_tokens=max_tokens)
        lab.step()
        lab.add(token_ids=range(101, 126), max_tokens=4)
        lab.step()
        lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count broken rules and misreads."""
        return {"rules broken": num_rules(lab), "requests that misread": num_misread_requests(lab)}


SCENARIO = AdoptedThenFreed()
