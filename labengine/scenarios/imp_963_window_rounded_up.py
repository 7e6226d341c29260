"""imp issue 963, fixed by pull request 967: a window kept in whole blocks from the end is one block short.

When the pool was nearly full, imp kept the last ceil(window / block_size) blocks of a request (StreamingLLM: 4 sinks
and a window of 4,096). Attention reads `window` tokens back from the newest one, and unless that one ends a block, they
lie in one more block. With the GPU's memory full, the read ended in an illegal access. With memory to spare, it
silently read garbage: the issue calls that model unaffected.
"""

from __future__ import annotations

from labengine.core.sliding_window import SlidingWindowGroup
from labengine.events import BlockFreed, RequestScheduled
from labengine.lab import Lab
from labengine.scenarios.scenario import Column, Scenario

WINDOW, BLOCK_SIZE = 8, 4


class WindowRoundedUp(SlidingWindowGroup):
    """Keeps as many of the last blocks as a window fills."""

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """Return all tokens before the last ceil(window / block_size) blocks, the next token's block included."""
        num_blocks = self._num_blocks(num_computed_tokens + 1)
        return max(0, num_blocks - self._num_blocks(self.window)) * self.block_size


class RoundedUp(Scenario):
    """One request that decodes after a prompt of whole blocks."""

    columns = (Column("labengine", WindowRoundedUp), Column("labengine"))

    def play(self, lab: Lab) -> None:
        """Run a prompt of two blocks and eight decodes."""
        lab.add(token_ids=range(1, 9), max_tokens=9)
        lab.step(9)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the decode steps, and those among them that read a freed block."""
        assert lab.timeline is not None
        num_freed, num_decodes, num_short = 0, 0, 0
        for event in lab.timeline.events():
            if isinstance(event, BlockFreed) and event.reason == "window":
                num_freed = max(num_freed, event.index + 1)
            if isinstance(event, RequestScheduled) and not event.is_prefill:
                num_decodes += 1
                num_short += max(0, event.start - WINDOW + 1) // BLOCK_SIZE < num_freed
        return {"decode steps": num_decodes, "of them with a block missing": num_short}
