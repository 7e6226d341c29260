"""SGLang pull request 27444: the host page that a load reads is evicted and used again while the load is under way.

A load from host memory is started, and device slots are returned before the copy has run. The node was locked on the
device only, and host eviction looks at another lock. Under pressure the page went to other KV, which the copy then
brought. Upstream this befell pages of window and Mamba layers; here it is played with blocks of full attention.
"""

from __future__ import annotations

from labengine.engine.external.host import HostStore
from labengine.engine.external.late import Delayed
from labengine.events import BlocksLoaded, BlocksSaved, ExternalHit, SlotsWritten
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_misread_blocks
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import (
    Column,
    GuideStop,
    Scenario,
    Table,
    sentences,
    settings,
)
from labengine.scenarios.tiers import HostPages, PinsPages, ReadsWhenDue

NUM_PAGES = 2


class LoadSourceEvicted(Scenario):
    """A loads two blocks from a tier of two pages; B is computed meanwhile, and its blocks are saved."""

    id = "sglang-27444"
    title = "The source of a load is evicted while it is read"
    report = Report(
        repository="sgl-project/sglang",
        kind="pull request",
        number="27444",
        title="[UnifiedTree]: Pin host buffers across async H→D in UnifiedRadixCache.load_back",
        state="merged",
        as_of="2026-09-16",
        seen_in="June 2026, before the merge",
        mended_in="the pull request itself, commit 8ce05e8; version 0.5.23 has it",
        needs=(
            "HiCache with the unified radix tree",
            "a window or Mamba model: their private host pages, or the Full anchor before the commit",
            "host eviction during the copy",
        ),
    )
    claim = (
        "An asynchronous load from the host tier holds a lock on the device only. Host eviction can recycle its source "
        "pages before the copy has read them, which intermittently corrupts KV."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "The copy runs behind the call, and host eviction asks for another lock than the one that was "
            "held. Since the merge the host pages are locked until the copy has ended."
        ),
        passages=(
            CodePassage(
                version="sglang 0.5.23",
                file="sglang/srt/mem_cache/unified_radix_cache.py",
                line=1830,
                text="host_anchor_params = self.inc_host_lock_ref(node_id).to_dec_params()",
                says="A load takes the host lock first.",
            ),
            ThreadPassage(
                source="sgl-project/sglang 27444",
                says=(
                    "Private host pages of window and Mamba layers, or the Full anchor before the commit, could "
                    "be recycled under the copy."
                ),
            ),
        ),
    )
    kind = "external tier"
    breaks = "A load delivers the KV that another request has put into its source page."
    wrong_figure = "blocks misread"
    seen_by = ("read", "named")
    question = "A loads two pages of a tier that has two, and B is saved meanwhile: what does A get?"
    roles = ("the bug: pages are not pinned", "correct: read before anything is evicted")
    columns = (
        Column(
            "not pinned",
            "vllm",
            "Reads the pages when the copy runs; an eviction may come first.",
            tier=lambda: ReadsWhenDue(HostPages(NUM_PAGES)),
        ),
        Column(
            "read at once",
            "vllm",
            "Reads the pages into memory of its own when the load starts.",
            tier=lambda: Delayed(HostStore(NUM_PAGES)),
        ),
        Column(
            "pinned",
            "vllm",
            "Keeps the pages from eviction until the load is over, as pull request 27444 does.",
            tier=lambda: PinsPages(HostPages(NUM_PAGES)),
        ),
    )
    settings = settings(num_blocks=12, block_size=4)
    guide = (
        GuideStop("The tier has A's two blocks, in its two pages. A's load starts.", ExternalHit),
        GuideStop("B is computed in the same step ...", SlotsWritten, lambda event: event.request_id == 1),
        GuideStop(
            "... and its two full blocks are saved. The tier has no page left: A's keys are evicted, and B's KV goes "
            "into their pages. Left, A's copy has not run yet.",
            BlocksSaved,
            lambda event: event.request_id == 1,
        ),
        GuideStop("A's load is over. Left, it has brought what the pages hold now: B's KV.", BlocksLoaded),
        GuideStop(
            "A computes its last token. Left, it reads B's KV at all of its own positions.",
            SlotsWritten,
            lambda event: event.request_id == 0,
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Start A's load and compute B in one step; take two more."""
        lab.fill_external(token_ids=range(1, 10))
        lab.add(token_ids=range(1, 10), max_tokens=2)
        lab.add(token_ids=range(101, 110), max_tokens=4)
        for _ in range(3):
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count loaded, misread and saved blocks."""
        return {
            "blocks loaded": sum(len(event.transfers) for event in events_of(lab, BlocksLoaded)),
            "blocks misread": num_misread_blocks(lab),
            "blocks of B saved": sum(len(e.transfers) for e in events_of(lab, BlocksSaved) if e.request_id == 1),
        }

    def answer(self, table: Table) -> str:
        """State what is delivered, and what a pin costs."""
        wrong, right, pinned = (table[column.name] for column in self.columns)
        return (
            f"Of {wrong['blocks loaded']} loaded blocks {wrong['blocks misread']} are B's, under A's names, and "
            f"nothing reports an error; {right['blocks misread']} where the load has read before. A pin costs a save: "
            f"{pinned['blocks of B saved']} of B's blocks are saved while the pages are read, instead of "
            f"{right['blocks of B saved']}."
        )


SCENARIO = LoadSourceEvicted()
