"""Rapid-MLX issue 196: copy-on-write copies a reference. Is that a fault? In a pool of slots it is, in Rapid-MLX not.

A request that was to write to a shared block got a block of its own: a new id, the source's token count, and the
source's data by reference. Then the source lost the request's reference. Two blocks, one memory, and each is counted as
its only holder. Here the memory is a slot of the pool, and who gets the freed block writes into it. In Rapid-MLX it is
a Python list that nobody changes in place: the other block keeps it.
"""

from __future__ import annotations

from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.events import BlockAllocated, BlockFreed, PrefixHit, SlotsWritten
from labengine.lab import Lab
from labengine.record.wording import counted
from labengine.scenarios.counts import num_misread_blocks
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings
from labengine.scenarios.shared_tails import SHARES_TAILS, SharesTailsKVCacheManager


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
    title = "Copy-on-write copies a reference: a claim that is false"
    report = Report(
        repository="raullenchai/Rapid-MLX",
        kind="issue",
        number="196",
        title=("CRITICAL: Paged cache COW copy shares mutable cache_data reference — use-after-free on block eviction"),
        state="closed",
        as_of="2026-08-22",
        seen_in=("no version: the copy by reference is in commit 7222ca77 (2026-08-22) and corrupts nothing there"),
        needs=("the paged cache, a hit that ends inside a block",),
    )
    claim = (
        "The copy in copy-on-write assigns the source block's data by reference and drops the source's reference: "
        "evicting either block corrupts the other."
    )
    conclusion = Conclusion(
        answer="does not hold",
        reason=(
            "Eviction sets `block.cache_data = None`: it gives the one block another value, and the list "
            "that both had stays with the other. Nothing writes into the list. In a pool of slots, as "
            "labengine has, a copy by reference is the same memory, and that is what is played here."
        ),
        passages=(
            CodePassage(
                version="rapid-mlx 7222ca77",
                file="vllm_mlx/paged_cache.py",
                line=1094,
                text="new_block.cache_data = source_block.cache_data",
                says="The copy takes the reference, as the issue says.",
            ),
            CodePassage(
                version="rapid-mlx 7222ca77",
                file="vllm_mlx/paged_cache.py",
                line=712,
                text="block.cache_data = None",
                says="Eviction rebinds an attribute of one block.",
            ),
            ThreadPassage(
                source="raullenchai/Rapid-MLX 196",
                says="The issue takes the assignment of None for a change of the shared list.",
            ),
        ),
    )
    kind = "partial tail"
    breaks = "A request uses the memory of a block that counts as free."
    wrong_figure = "blocks misread"
    seen_by = ("ref_count", "held", "write", "read")
    question = "B copies the tail of a cached prompt, and C takes what is free: whose KV does B read?"
    roles = ("what the claim says, in a pool of slots", "correct: full blocks only")
    columns = (
        Column(
            "by reference",
            BROKEN,
            "Here: B's copy is the source's memory, and the source is free. Rapid-MLX copies a list that stays.",
        ),
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

    def answer(self, table: Table) -> str:
        """State what the missing reference leads to."""
        wrong, right = (table[column.name] for column in self.columns)
        return (
            f"{wrong['table entries']} table entries share {wrong['used blocks']} blocks that are counted once each, "
            f"and {counted(wrong['blocks misread'], 'block')} misread instead of {right['blocks misread']}. In a pool "
            "of slots a copy needs a block and the bytes: a reference to the source is the source. Rapid-MLX keeps "
            "arrays in lists, and its eviction drops one reference of two: there the claim is false."
        )


SCENARIO = CopiedByReference()
