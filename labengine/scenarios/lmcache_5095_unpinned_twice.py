"""LMCache pull request 5095 (issue 5090): retrieval gives back a pin, and the look-up gives it back again.

A look-up pins the chunks that it finds. The retrieval unpinned them, and then the end of the look-up did so again. The
count was clamped at 0, with a warning for every chunk of every hit. If only one request uses a chunk, no other harm is
known. A chunk that two requests load loses the other request's pin.
"""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.connector import BlockTransfer
from labengine.events import BlocksLoaded, BlocksSaved, SlotsWritten, TierChanged
from labengine.lab import Lab
from labengine.scenarios.counts import num_misread_blocks
from labengine.scenarios.scenario import (
    Column,
    Experiment,
    GuideStop,
    Scenario,
    sentences,
)
from labengine.scenarios.tiers import HostPages, PinsPages


class UnpinsTwice(PinsPages):
    """Unpins when the content is retrieved, and again when the look-up ends."""

    def unpin(self, transfers: Sequence[BlockTransfer]) -> None:
        """Give each pin back twice."""
        for _ in ("retrieved", "looked up"):
            super().unpin(transfers)


FIRST, SECOND = [1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 4, 15, 16, 17, 18, 19]
"""Two prompts with their first block in common."""


class Pinned(Experiment):
    """Played on a tier of three pages whose loads take two steps."""

    columns = (
        Column("vllm", tier=lambda: UnpinsTwice(HostPages(3), 2)),
        Column("vllm", tier=lambda: PinsPages(HostPages(3), 2)),
    )

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count excess unpins and misread blocks."""
        assert isinstance(lab.external, PinsPages)
        return {
            "pins below zero": lab.external.inner.num_underflows,
            "blocks misread": num_misread_blocks(lab),
        }


class UnsharedChunks(Pinned):
    """One request loads, and no other shares its chunks."""

    def play(self, lab: Lab) -> None:
        """Run one request."""
        lab.fill_external(token_ids=FIRST)
        lab.add(token_ids=FIRST, max_tokens=2)
        lab.step(5)


class UnpinnedTwice(Pinned, Scenario):
    """A and B load the same first block, B a step later; C is saved between the ends of the two loads."""

    experiments = {"alone": UnsharedChunks()}
    guide = (
        GuideStop("A loads two blocks: both pages are pinned.", TierChanged, lambda event: bool(event.pinned)),
        GuideStop(
            "A step later B loads two blocks, the first of which is also A's: that page has two pins.",
            TierChanged,
            lambda event: any(count == 2 for _, _, count in event.pinned),
        ),
        GuideStop(
            "A's load is over, and its pins are given back: on the left twice, so B's pin on the shared page is gone.",
            TierChanged,
            lambda event: any(count == 0 for _, _, count in event.pinned),
        ),
        GuideStop(
            "C's blocks are saved, and pages are evicted for them: on the left, also the shared one.",
            BlocksSaved,
            lambda event: event.request_id == 2,
        ),
        GuideStop(
            "B's load is over. On the left, it read C's KV from the shared page.",
            BlocksLoaded,
            lambda event: event.request_id == 1,
        ),
        GuideStop("B computes its last token; on the left it reads C's KV.", SlotsWritten, lambda e: e.request_id == 1),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Start A's load, and B's a step later; compute C in the step in which A's load has ended."""
        for prompt in (FIRST, SECOND):
            lab.fill_external(token_ids=prompt)
        lab.add(token_ids=FIRST, max_tokens=4)
        lab.step()
        lab.add(token_ids=SECOND, max_tokens=2)
        lab.step()
        lab.add(token_ids=range(101, 110), max_tokens=4)
        lab.step(3)
