"""ferrox issue 61: nothing is freed behind a sliding window.

The model attends to a window, but the store keeps every token until the request ends: a model with a window costs the
memory of full attention. In an engine that admits requests by their window, as labengine does, it costs preemptions as
well.
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.config import GroupSpec
from labengine.core.editions import LABENGINE
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.sliding_window import SlidingWindowGroup
from labengine.events import BlockAllocated, BlockFreed, RequestPreempted, RequestScheduled
from labengine.lab import Lab
from labengine.record.wording import counted
from labengine.scenarios.counts import num_preemptions
from labengine.scenarios.report import Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import (
    Column,
    FirstWrong,
    GuideStop,
    Scenario,
    Table,
    moment_of,
    sentences,
    settings,
    wrong_at,
)

WINDOW, BLOCK_SIZE = 8, 4


class KeepsAll(SlidingWindowGroup):
    """A window that the store knows nothing of."""

    def drop_skipped(self, request: Request, num_computed_tokens: int) -> None:
        """Free nothing: every block stays until the request gives back all of them."""


class WindowKept(Scenario):
    """Two requests in a pool with room for two windows and more."""

    id = "ferrox-61"
    title = "Nothing is freed behind the window"
    report = Report(
        repository="antonellof/ferrox",
        kind="issue",
        number="61",
        title="No KV store evicts behind a sliding window, so a windowed model costs full-attention memory",
        state="open",
        as_of="2026-09-10",
        seen_in="before pull request 113 (2026-09-04)",
        mended_in=(
            "in part: pull request 113 evicts in the contiguous store behind FERROX_KV_WINDOW=1, and 189 "
            "counts the saving at admission"
        ),
        needs=("a model with sliding-window layers",),
    )
    claim = (
        "But for a paged store of a model with one window, no store evicts behind a sliding window: such a model costs "
        "the memory of full attention."
    )
    conclusion = Conclusion(
        answer="holds in part",
        reason=(
            "The issue itself excepts the paged store of a model whose layers all have one window: there "
            "it recycles. That store is what is played here without recycling. The preemptions are ours; "
            "the issue is about memory."
        ),
        passages=(
            ThreadPassage(
                source="antonellof/ferrox 113",
                says="Rows behind the window are dropped in the contiguous store on a CPU, behind a setting.",
            ),
            ThreadPassage(
                source="antonellof/ferrox 61",
                says="A comment of 2026-09-10: the store evicted already, and nothing counted the saving.",
            ),
        ),
    )
    kind = "window"
    breaks = "Blocks that no token will read stay in use; here, other requests are preempted for want of them."
    why_unseen = (
        "Each block is in one table, counted once and read correctly: a block that is kept too long breaks no rule, "
        "and only memory and progress show it."
    )
    question = "Two requests with a window of 8, 20 steps: how many blocks will no token read again?"
    roles = ("the bug: kept to the end", "correct: freed behind the window")
    columns = (
        Column(
            "kept to the end",
            Parts(name="labengine, window kept", sliding_window_group=KeepsAll).overriding(LABENGINE),
            "Frees a request's blocks when it ends or is preempted, and not before.",
        ),
        Column("freed behind the window", "labengine", "Frees each block when the window has moved past it."),
    )
    settings = settings(num_blocks=10, groups=(GroupSpec(BLOCK_SIZE, "sliding_window", WINDOW),))
    num_steps = 20
    guide = (
        GuideStop(
            "A and B are admitted: with a window of 8 tokens each of them needs 3 blocks at a time, and the pool has "
            "10.",
            RequestScheduled,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "Right, A's window has moved past its first block, and the block is free. Left, it stays.",
            BlockFreed,
            lambda event: event.reason == "window",
        ),
        GuideStop(
            "A's sixth block. Right, three of the five before it are free again.",
            BlockAllocated,
            lambda event: event.request_id == 0 and event.index == 5,
        ),
        GuideStop(
            "Left, all 10 blocks are in use, and A needs one more. B is preempted, and gives back what it will have to "
            "compute or to find again.",
            RequestPreempted,
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Run two requests of 8 prompt tokens, not to their end."""
        for first in (1, 101):
            lab.add(token_ids=range(first, first + 8), max_tokens=30)
        for _ in range(self.num_steps):
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the used blocks, those of them before every window, and preemptions."""
        snapshot = lab.snapshot()
        unread = sum(
            block_id != snapshot.null_block
            for request in snapshot.requests.values()
            for block_id in request.block_tables[0][: max(0, request.num_computed_tokens - WINDOW + 1) // BLOCK_SIZE]
        )
        return {
            "used blocks": snapshot.num_used_blocks,
            "that no token will read": unread,
            "preemptions": num_preemptions(lab),
        }

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if two blocks or more are kept that no token will read: one may wait for the next allocation."""
        return measured["that no token will read"] > 2

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the first preemption: two requests fit by their windows."""
        moment = moment_of(lab, RequestPreempted)
        if moment is None:
            return None
        return wrong_at(lab, moment, "B is preempted for a block, and A holds blocks that no token will read again.")

    def answer(self, table: Table) -> str:
        """State what the kept blocks cost."""
        kept, freed = (table[column.name] for column in self.columns)
        return (
            f"Of {kept['used blocks']} used blocks {kept['that no token will read']} are never read again, and of "
            f"{freed['used blocks']} with eviction {freed['that no token will read']}. Admission counts on the window, "
            f"so the kept blocks are missing elsewhere: {counted(kept['preemptions'], 'preemption')} instead of "
            f"{freed['preemptions']}."
        )


SCENARIO = WindowKept()
