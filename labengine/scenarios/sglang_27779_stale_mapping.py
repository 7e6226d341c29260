"""SGLang pull request 27779: a window's slots are freed, but the mapping to them stays.

Slots of the window layers are found through a mapping from slots of the full layers. A free gave back a whole page of
window slots, but cleared the mapping of only some of its tokens. A later free could follow the remaining entries and
free the page again. Here a table replaces the mapping, and the stale entry is a block's; the consequence for the KV of
other requests is our reading.
"""

from __future__ import annotations

from labengine.core.request import Request
from labengine.core.sliding_window import SlidingWindowGroup
from labengine.events import BlockAllocated, BlockFreed
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_misread_blocks
from labengine.scenarios.scenario import Column, Scenario


class StaleMapping(SlidingWindowGroup):
    """Frees the blocks that left the window, without changing the table."""

    def drop_skipped(self, request: Request, num_computed_tokens: int) -> None:
        """Free the blocks before the window; their entries stay, so the next call frees the blocks again."""
        table = request.block_tables[self.index]
        before = table[:]
        super().drop_skipped(request, num_computed_tokens)
        table[:] = before


class FreedByAStaleEntry(Scenario):
    """A frees its first block, gets it again for new tokens, and frees it again through the old entry."""

    columns = (Column("labengine", StaleMapping), Column("labengine"))

    def play(self, lab: Lab) -> None:
        """Run A, which reuses its own block in step 4, and B, which holds the third block; then add C."""
        lab.add(token_ids=range(1, 8), max_tokens=8)
        lab.add(token_ids=range(51, 52), max_tokens=4)
        lab.step(4)
        lab.add(token_ids=range(101, 104), max_tokens=2)
        lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count how often A took and freed blocks, and misread blocks."""
        taken = [event for event in events_of(lab, BlockAllocated) if event.request_id == 0]
        freed = [event for event in events_of(lab, BlockFreed) if event.request_id == 0]
        return {
            "blocks that A took": len(taken),
            "blocks that A gave back": len(freed),
            "entries that left A's window": 1,
            "blocks misread": num_misread_blocks(lab),
        }
