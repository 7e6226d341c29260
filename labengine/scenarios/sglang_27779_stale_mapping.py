"""SGLang pull request 27779 (see also 27586): a window's slots are freed, and the mapping to them stays.

Slots of the window layers are found through a mapping from the slots of the full layers. A free gave back a whole page
of window slots and cleared the mapping of some of its tokens only. A later free followed the entries that were left, to
a page that was in use again by then. Here a table takes the place of the mapping, and the stale entry is a block's:
what follows for the KV of others is our reading.
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.config import GroupSpec
from labengine.core.editions import LABENGINE
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.sliding_window import SlidingWindowGroup
from labengine.events import BlockAllocated, BlockFreed, SlotsWritten
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_misread_blocks
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings


class StaleMapping(SlidingWindowGroup):
    """Frees what left the window, and leaves the table as it was."""

    def drop_skipped(self, request: Request, num_computed_tokens: int) -> None:
        """Free the blocks before the window; their entries still name them, so the next call frees them again."""
        table = request.block_tables[self.index]
        before = table[:]
        super().drop_skipped(request, num_computed_tokens)
        table[:] = before


class FreedByAStaleEntry(Scenario):
    """A gives its first block back, gets it again for new tokens, and gives it back through the old entry."""

    id = "sglang-27779"
    title = "A block that left the window is freed again through its old entry"
    report = Report(
        repository="sgl-project/sglang",
        kind="pull request",
        number="27779",
        title="Fix paged SWA free mapping cleanup",
        state="merged",
        as_of="2026-09-16",
        seen_in="June 2026, before the merge",
        mended_in="the pull request itself; version 0.5.23 clears the mapping of full pages",
        needs=(
            "a sliding-window model with its own pool of slots",
            "page_size > 1",
        ),
    )
    claim = (
        "Freeing window slots leaves stale entries in the mapping that leads to them. A later free follows such an "
        "entry and frees the page a second time, although it is in use again."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "A free of one token gives back its whole page, and cleared the mapping of that token only: a "
            "later free of another token of the page frees it again. The report speaks of a double free "
            "and of wrong accounts."
        ),
        passages=(
            CodePassage(
                version="sglang 0.5.23",
                file="sglang/srt/mem_cache/allocator/swa.py",
                line=512,
                text="mapping_indices = self._expand_to_full_pages(free_index)",
                says="What is freed is widened to full pages.",
            ),
            CodePassage(
                version="sglang 0.5.23",
                file="sglang/srt/mem_cache/allocator/swa.py",
                line=514,
                text="self.clear_full_to_swa_mapping(mapping_indices)",
                says="The mapping of the full pages is cleared.",
            ),
            ThreadPassage(
                source="sgl-project/sglang 27779",
                says="With pages of several tokens, entries of other tokens of a freed page stayed.",
            ),
        ),
    )
    kind = "double free"
    breaks = "One block stands in two entries of a table, and the free of the old entry takes it from the new one."
    seen_by = ("said", "ref_count", "one_entry", "read")
    question = "A reuses a block that had left its own window, and C asks for memory: who holds the block?"
    roles = ("the bug: the entry stays", "the fix: the entry is cleared")
    columns = (
        Column(
            "entry stays",
            Parts(name="labengine, stale mapping", sliding_window_group=StaleMapping).overriding(LABENGINE),
            "Frees the block that left the window; entry 0 still names it.",
        ),
        Column("entry cleared", "labengine", "Frees the block, and entry 0 is null: nothing can free it again."),
    )
    settings = settings(num_blocks=3, groups=(GroupSpec(4, "sliding_window", 5),), max_num_batched_tokens=4)
    guide = (
        GuideStop(
            "A's window moves past its first block, and block #0 is freed. Left, entry 0 of A's table still names it.",
            BlockFreed,
            lambda event: event.request_id == 0 and event.index == 0,
        ),
        GuideStop(
            "A needs a block for position 8, and #0 is the only free one: now it is A's third block.",
            BlockAllocated,
            lambda event: event.request_id == 0 and event.index == 2,
        ),
        GuideStop(
            "A step later. Left, entry 0 is before the window, and is freed once more: the reference that goes is the "
            "third block's.",
            BlockFreed,
            lambda event: event.request_id == 0 and event.index == 0,
        ),
        GuideStop(
            "C comes. Left, it gets #0, which A is reading and writing.",
            BlockAllocated,
            lambda event: event.request_id == 2,
        ),
        GuideStop("Both write to #0 in one step. Right, C waits for a block that is free.", SlotsWritten),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Run A, which reuses its own block in step 4, and B, which holds the third one; then add C."""
        lab.add(token_ids=range(1, 8), max_tokens=8)
        lab.add(token_ids=range(51, 52), max_tokens=4)
        for _ in range(4):
            lab.step()
        lab.add(token_ids=range(101, 104), max_tokens=2)
        lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count how often A's blocks were given out to A and freed, and misread blocks."""
        taken = [event for event in events_of(lab, BlockAllocated) if event.request_id == 0]
        freed = [event for event in events_of(lab, BlockFreed) if event.request_id == 0]
        return {
            "blocks that A took": len(taken),
            "blocks that A gave back": len(freed),
            "entries that left A's window": 1,
            "blocks misread": num_misread_blocks(lab),
        }

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if A gave back more blocks than have left its window."""
        return measured["blocks that A gave back"] > measured["entries that left A's window"]

    def answer(self, table: Table) -> str:
        """State what A gave back."""
        wrong, right = (table[column.name] for column in self.columns)
        return (
            f"One entry has left A's window, and A has given back {wrong['blocks that A gave back']} blocks instead of "
            f"{right['blocks that A gave back']}: {wrong['blocks misread']} misread. As long as the block waits in the "
            "free queue, the pool refuses the second free; it is silent because the block is in use again."
        )


SCENARIO = FreedByAStaleEntry()
