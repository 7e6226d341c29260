"""Rapid-MLX issue 196: copy-on-write copies a reference. This is a fault in a pool of slots, but not in Rapid-MLX.

A request about to write to a shared block got a new block: a new id, the source's token count, and the source's data by
reference. Then the source lost the request's reference. Two blocks share one memory, and each counts as its only
holder. Here the memory is a slot of the pool, and the next request that gets the freed block writes into it. In
Rapid-MLX it is a Python list that no code changes in place: the other block keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.lab import Lab
from labengine.record.wording import counted
from labengine.scenarios.counts import num_misread_blocks
from labengine.scenarios.scenario import Column, Scenario, Table
from labengine.scenarios.shared_tails import SharesTailsGroup, SharesTailsKVCacheManager


class CopiesByReference(SharesTailsKVCacheManager):
    """A copy that uses the source's memory without a reference to it."""

    def allocate_computed(self, request: Request, hit: Hit, num_external: int) -> None:
        """Add the hit; give back the source of a partly filled block, and continue to use its memory."""
        super().allocate_computed(request, hit, num_external)
        [group], [table] = self.groups, request.block_tables
        if hit.num_tokens % group.block_size:
            group.release(request, table[-1:], [len(table) - 1], "merged")


class CopiedByReference(Scenario):
    """A has ended; B begins like A and takes a copy of A's last block; C needs memory."""

    columns = (
        Column("vllm", Parts(kv_cache_manager=CopiesByReference, full_attention_group=SharesTailsGroup)),
        Column("vllm"),
    )

    def play(self, lab: Lab) -> None:
        """Run A to its end, then B for a step, then C, which needs every free block."""
        shared = list(range(1, 7))
        lab.add(token_ids=[*shared, 50], max_tokens=1)
        lab.step()
        lab.add(token_ids=[*shared, 60], max_tokens=6)
        lab.step()
        lab.add(token_ids=range(100, 113), max_tokens=6)
        lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count table entries, used blocks, and misread blocks."""
        snapshot = lab.snapshot()
        return {
            "table entries": sum(len(table) for r in snapshot.requests.values() for table in r.block_tables),
            "used blocks": snapshot.num_used_blocks,
            "blocks misread": num_misread_blocks(lab),
        }

    def more(self, table: Table) -> Mapping[str, object]:
        """Return further values that the finding names."""
        return {"misread": counted(table[self.columns[0].name]["blocks misread"], "block")}
