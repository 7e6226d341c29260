"""SGLang pull request 29860: pages larger than the window, and the last page is freed before it is cached.

Window slots were freed before the prefix was inserted into the tree, up to the window of the next token. A prefix ends
with a page. With pages larger than the window, the next token's window may not reach the last full page any more: what
is inserted ends with a leaf whose window slots are gone. The fix frees slots that lie max(window, page size) behind.
What shows it here is fewer hits; upstream it was an assertion or a leak.
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.config import GroupSpec
from labengine.core.editions import LABENGINE
from labengine.core.kv_cache_manager import KVCacheManager, Moment
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.events import BlockCached, BlockFreed, PrefixHit, SlotsWritten
from labengine.lab import Lab
from labengine.scenarios.counts import num_computed_tokens, num_hit_tokens
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
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

PAGE, WINDOW = 8, 4


class FreesBeforeCaching(KVCacheManager):
    """Frees what the next token does not reach, and caches what is left."""

    def register(self, request: Request, num_tokens: int, moment: Moment) -> None:
        """Free the blocks before the next token's window; then register the full blocks that are still there."""
        if moment == "computed":
            for group in self.groups:
                group.drop_skipped(request, num_tokens)
        super().register(request, num_tokens, moment)


class KeepsAPage(KVCacheManager):
    """The pull request: frees as late as if the window were a page at least."""

    def register(self, request: Request, num_tokens: int, moment: Moment) -> None:
        """Free the blocks that lie max(window, page size) behind; then register."""
        if moment == "computed":
            for group in self.groups:
                group.drop_skipped(request, num_tokens - max(0, group.block_size - (group.spec.window or 0)))
        super().register(request, num_tokens, moment)


class LastLeafDropped(Scenario):
    """A prompt of a page and a half, twice."""

    id = "sglang-29860"
    title = "The page that a prefix ends with is freed before it is cached"
    report = Report(
        repository="sgl-project/sglang",
        kind="pull request",
        number="29860",
        title="Fix SWA eviction tombstoning the last leaf",
        state="merged",
        as_of="2026-09-16",
        seen_in="July 2026, before the merge",
        mended_in="the pull request itself; version 0.5.23 keeps max(window, page size)",
        needs=(
            (
                "SGLANG_OPT_UNIFIED_CACHE_FREE_OUT_OF_WINDOW_SLOTS and SGLANG_OPT_SWA_EVICT_DROP_PAGE_MARGIN, "
                "both off by default then"
            ),
            "page_size > sliding_window_size",
        ),
    )
    claim = (
        "With page_size > sliding_window_size, eager eviction of out-of-window slots reaches the end of the last full "
        "page: the leaf that is inserted holds no window slots, and overlap frees then fail or leak."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "With both settings the frontier reached the end of the last full page. The report names an "
            "assertion or a leak; that the page is not found again is what the same order does here."
        ),
        passages=(
            CodePassage(
                version="sglang 0.5.23",
                file="sglang/srt/mem_cache/common.py",
                line=117,
                text="max(sliding_window_size, page_size), page_size",
                says="What lies max(window, page size) behind is freed, and no later slot.",
            ),
            ThreadPassage(
                source="sgl-project/sglang 29860",
                says="The last leaf had no window slots left, and a free during overlap failed or leaked.",
            ),
        ),
    )
    kind = "window"
    breaks = "The window group's part of a prefix is gone before the prefix is cached, so no hit can use it."
    why_unseen = (
        "What is freed is not read again by its own request, and what is not cached is only missed: no state is wrong, "
        "and the figures of hits show it."
    )
    question = "A prompt of 12 tokens twice, pages of 8, a window of 4: how much is found?"
    roles = ("the bug: freed, then cached", "correct: cached, then freed")
    columns = (
        Column(
            "freed first",
            Parts(name="labengine, frees before caching", kv_cache_manager=FreesBeforeCaching).overriding(LABENGINE),
            "Frees all pages before the next token's window, the last full one among them.",
        ),
        Column("cached first", "labengine", "Registers a step's full blocks, and frees at the next allocation."),
        Column(
            "a page behind",
            Parts(name="labengine, keeps a page", kv_cache_manager=KeepsAPage).overriding(LABENGINE),
            "29860: frees first, but only pages max(window, page size) behind.",
        ),
    )
    settings = settings(num_blocks=12, groups=(GroupSpec(PAGE), GroupSpec(PAGE, "sliding_window", WINDOW)))
    guide = (
        GuideStop(
            "The prompt is computed: a full page and half of the next one, in either group.",
            SlotsWritten,
            lambda event: event.request_id == 0 and event.group == 1,
        ),
        GuideStop(
            "The full group's first page is cached.", BlockCached, lambda event: event.group == 0 and event.index == 0
        ),
        GuideStop(
            "Left, the window of position 12 begins at 9, so the window group's first page is freed. It has not been "
            "cached yet, and never will be.",
            BlockFreed,
            lambda event: event.group == 1 and event.index == 0,
        ),
        GuideStop(
            "The same prompt again. Left, the full group has 8 tokens of it, and the window group none: nothing is "
            "hit.",
            PrefixHit,
            lambda event: event.request_id == 1,
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Run the prompt twice, one after the other."""
        for _ in range(2):
            lab.add(token_ids=range(1, 13), max_tokens=2)
            lab.step()
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the tokens that the second request hits, and all computed tokens."""
        return {
            "tokens found again": num_hit_tokens(lab, 1),
            "computed tokens": num_computed_tokens(lab),
        }

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if the page that was computed is not found."""
        return measured["tokens found again"] < PAGE

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the free of a page that is not cached."""
        if num_hit_tokens(lab, 1):
            return None
        moment = moment_of(lab, BlockFreed, lambda event: event.group == 1 and event.index == 0)
        assert moment is not None
        return wrong_at(lab, moment, "The window group's page is freed, and it was not cached before.")

    def answer(self, table: Table) -> str:
        """State what is found, and that two orders are right."""
        wrong, right, page = (table[column.name] for column in self.columns)
        return (
            f"Of {PAGE} tokens in a full page the second request finds {wrong['tokens found again']}, and "
            f"{right['tokens found again']} if pages are cached before they are freed, as many as with the pull "
            f"request's margin ({page['tokens found again']}): {wrong['computed tokens']} computed tokens instead of "
            f"{right['computed tokens']}."
        )


SCENARIO = LastLeafDropped()
