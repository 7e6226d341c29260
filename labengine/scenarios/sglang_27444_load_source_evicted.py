"""SGLang pull request 27444: the host page that a load reads is evicted and reused while the load is under way.

A load from host memory starts, and device slots are returned before the copy has run. The node was locked only on the
device, but host eviction checks a different lock. Under pressure the page was given to other KV, which the copy then
delivered. Upstream this happened to pages of window and Mamba layers; here it is played with blocks of full attention.
"""

from __future__ import annotations

from labengine.engine.external.host import HostStore
from labengine.engine.external.late import Delayed
from labengine.events import BlocksLoaded, BlocksSaved
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_misread_blocks
from labengine.scenarios.scenario import (
    Column,
    Scenario,
)
from labengine.scenarios.tiers import HostPages, PinsPages, ReadsWhenDue

NUM_PAGES = 2


class LoadSourceEvicted(Scenario):
    """A loads two blocks from a tier of two pages; meanwhile B is computed, and its blocks are saved."""

    columns = (
        Column("vllm", tier=lambda: ReadsWhenDue(HostPages(NUM_PAGES))),
        Column("vllm", tier=lambda: Delayed(HostStore(NUM_PAGES))),
        Column("vllm", tier=lambda: PinsPages(HostPages(NUM_PAGES))),
    )
    figures = {
        "blocks loaded": lambda lab: sum(len(event.transfers) for event in events_of(lab, BlocksLoaded)),
        "blocks misread": num_misread_blocks,
        "blocks of B saved": lambda lab: sum(
            len(e.transfers) for e in events_of(lab, BlocksSaved) if e.request_id == 1
        ),
    }

    def play(self, lab: Lab) -> None:
        """Start A's load and compute B in one step, then take two more."""
        lab.fill_external(token_ids=range(1, 10))
        lab.add(token_ids=range(1, 10), max_tokens=2)
        lab.add(token_ids=range(101, 110), max_tokens=4)
        lab.step(3)
