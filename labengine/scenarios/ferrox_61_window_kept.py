"""ferrox issue 61: blocks that a sliding window has passed are never freed.

The model attends to a window, but the store keeps every token until the request ends, so a model with a window costs
the memory of full attention. In an engine that admits requests by their window, as labengine does, it also costs
preemptions.
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.core.request import Request
from labengine.core.sliding_window import SlidingWindowGroup
from labengine.lab import Lab
from labengine.record.wording import counted
from labengine.scenarios.counts import num_preemptions
from labengine.scenarios.scenario import (
    Column,
    Scenario,
    Table,
)

WINDOW, BLOCK_SIZE = 8, 4


class KeepsAll(SlidingWindowGroup):
    """A window that the store does not know about."""

    def drop_skipped(self, request: Request, num_computed_tokens: int) -> None:
        """Free nothing: every block stays until the request gives all its blocks back."""


class WindowKept(Scenario):
    """Two requests in a pool with room for more than two windows."""

    columns = (Column("labengine", KeepsAll), Column("labengine"))
    num_steps = 20

    def play(self, lab: Lab) -> None:
        """Run two requests of 8 prompt tokens, but not to the end."""
        for first in (1, 101):
            lab.add(token_ids=range(first, first + 8), max_tokens=30)
        lab.step(self.num_steps)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the used blocks, those among them that every window has passed, and preemptions."""
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

    def more(self, table: Table) -> Mapping[str, object]:
        """Return further values that the finding names."""
        return {"preemptions": counted(table[self.columns[0].name]["preemptions"], "preemption")}
