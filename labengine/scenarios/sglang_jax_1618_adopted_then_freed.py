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
from labengine.events import BlockAllocated, BlockCached, BlockFreed, RequestAdded, RequestFinished, StepEnded
from labengine.lab import Lab
from labengine.scenarios.counts import num_misread_requests, num_rules
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings


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

    id = "sglang-jax-1618"
    title = "The cache takes over a block that its request then frees"
    report = Report(
        repository="sgl-project/sglang-jax",
        kind="issue",
        number="1618",
        title=("[Bug] `cache_finished_req` frees the KV slots a revived HiCache tombstone just adopted (since #1564)"),
        state="closed",
        as_of="2026-09-09",
        seen_in="pull request 1564; commit cddbf6f (2026-08-21) has not got it",
        needs=(
            "HiCache: only there do tombstones exist",
            "a tree with one component",
        ),
    )
    claim = (
        "When insert() revives a tombstone with the request's slots, the prefix length that it returns includes them, "
        "and the request frees them as duplicates."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "With 1564 a revived node counts into the length that the insert returns, and the request "
            "frees up to it. Before, the code said that it must not count."
        ),
        passages=(
            CodePassage(
                version="sglang-jax cddbf6f",
                file="python/sgl_jax/srt/mem_cache/unified_radix_cache.py",
                line=738,
                text="Must NOT add to total_prefix_length",
                says="Before 1564 a revived node is no part of the length.",
            ),
            ThreadPassage(
                source="sgl-project/sglang-jax 1618",
                says=(
                    "Since 1564 the length is added always, and the trees of one component free what was taken over."
                ),
            ),
        ),
    )
    kind = "merge"
    breaks = "The map leads to a block that its request still uses, and the free queue gives it to another one."
    wrong_figure = "requests that misread"
    seen_by = ("ref_count", "held", "read")
    question = "A ends as its twin B is registered: who owns B's blocks then?"
    columns = (BROKEN, FIXED)
    settings = settings(num_blocks=8, block_size=4)
    roles = ("the bug: found means freed", "the fix: freed only if replaced")
    guide = (
        GuideStop(
            "A and B have the same prompt, and are computed in the same step. A wants one token, B more.",
            RequestAdded,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "A's blocks are registered, and A ends: they are free, and the map still leads to them.", RequestFinished
        ),
        GuideStop(
            "B's first block has the same hash. A's block is free, so B's takes its place in the map.",
            BlockCached,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "Left, the hash was found, so B's block counts as a duplicate: it is freed, while B's table and the map "
            "name it.",
            BlockFreed,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "After the step. Right, B holds three blocks. Left, one; two are in its table and in the free queue.",
            StepEnded,
        ),
        GuideStop(
            "C needs seven blocks: all that are free. Left, two of B's are among them.",
            BlockAllocated,
            lambda event: event.request_id == 2 and event.index == 6,
        ),
        GuideStop("B decodes. Left, it reads C's keys and values.", StepEnded, lambda event: event.step == 3),
    )
    sentences = sentences(guide)

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

    def answer(self, table: Table) -> str:
        """State what is broken."""
        wrong, right = (table[column.name] for column in self.columns)
        return (
            f"{wrong['rules broken']} rules are broken, and {wrong['requests that misread']} request reads C's KV; "
            f"{right['rules broken']} and {right['requests that misread']} where ownership moves with the entry. "
            f"(The report is about requests that end: in our reading the revived node then leads to free slots, and "
            f"the next hit reads them.)"
        )


SCENARIO = AdoptedThenFreed()
