"""Rapid-MLX issue 196: copy-on-write copies a reference, and gives the source back.

A request that was to write to a shared block got a block of its own: a new id, the source's token count, and the
source's data by reference. Then the source lost the request's reference. Two blocks, one memory, and each is counted as
its only holder: when the one is evicted, the other's KV is gone.
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.events import BlockAllocated, BlockFreed, PrefixHit, SlotsWritten
from labengine.lab import Lab
from labengine.scenarios.figures import num_misread_blocks
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings
from labengine.scenarios.shared_tails import SHARES_TAILS, SharesTailsKVCacheManager
from labengine.wording import counted


class CopiesByReference(SharesTailsKVCacheManager):
    """A copy that is the source: its memory, without a reference of its own."""

    def allocate_computed(self, request: Request, hit: Hit, num_external: int) -> None:
        """Add the hit; give the source of a partly filled block back, and go on using its memory."""
        super().allocate_computed(request, hit, num_external)
        [group], [table] = self.groups, request.block_tables
        if hit.num_tokens % group.block_size:
            group.release(request, table[-1:], [len(table) - 1], "merged")


BROKEN = Parts(name="vllm, copies by reference", kv_cache_manager=CopiesByReference).overriding(SHARES_TAILS)


class CopiedByReference(Scenario):
    """A has ended; B begins like A and takes a copy of A's last block; C needs memory."""

    id = "rapid-mlx-196"
    title = "Copy-on-write copies a reference"
    url = "https://github.com/raullenchai/Rapid-MLX/issues/196"
    upstream = "Issue 196 asks for a copy of the data. State not known."
    claim = (
        "The copy in copy-on-write assigns the source block's data by reference and drops the source's reference: "
        "evicting either block corrupts the other."
    )
    kind = "partial tail"
    breaks = "A request uses the memory of a block that counts as free."
    seen_by = ("ref_count", "held", "write", "read")
    question = "B copies the tail of a cached prompt, and C takes what is free: whose KV does B read?"
    roles = ("the bug: a reference is copied", "correct: full blocks only")
    columns = (
        Column("by reference", BROKEN, "B's copy is the source's memory, and the source is free."),
        Column("full blocks", "vllm", "B computes the tokens behind the last full block, in a block of its own."),
    )
    settings = settings(num_blocks=6, block_size=4, hash_block_size=2)
    guide = (
        GuideStop(
            "A has ended, and its blocks are cached. B begins with six of A's tokens: left, a full block and half of "
            "the next one.",
            PrefixHit,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "Left, B is going to write to the second block, so it is copied: B's copy refers to the same memory, and "
            "the source is given back. It is free, and at the tail of the queue.",
            BlockFreed,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "C needs all blocks that are free. Left, the last of them is the memory that B uses.",
            BlockAllocated,
            lambda event: event.request_id == 2 and event.index == 2,
        ),
        GuideStop(
            "C writes its prompt. Left, B's two cached tokens are gone, and B reads on.",
            SlotsWritten,
            lambda event: event.request_id == 2,
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Run A to its end, then B for a step; then C, which needs every free block."""
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

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if a request read KV that is not its own."""
        return measured["blocks misread"] > 0

    def answer(self, table: Table) -> str:
        """State what the missing reference leads to."""
        wrong, right = (table[column.name] for column in self.columns)
        return (
            f"{wrong['table entries']} table entries share {wrong['used blocks']} blocks that are counted once each, "
            f"and {counted(wrong['blocks misread'], 'block')} misread instead of {right['blocks misread']}. In a paged "
            "pool a copy needs a block and the bytes: a reference to the source is the source."
        )


SCENARIO = CopiedByReference()
