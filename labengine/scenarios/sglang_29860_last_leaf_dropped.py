"""SGLang pull request 29860: with pages larger than the window, the last page is freed before it is cached.

Window slots were freed before the prefix was inserted into the tree, up to the window of the next token. A prefix ends
with a page. With pages larger than the window, the next token's window may no longer reach the last full page, so the
inserted prefix ends with a leaf whose window slots are gone. The fix frees slots max(window, page size) behind. Here
the symptom is fewer hits; upstream it was an assertion or a leak.
"""

from __future__ import annotations

from labengine.core.kv_cache_manager import KVCacheManager, Moment
from labengine.core.request import Request
from labengine.lab import Lab
from labengine.scenarios.counts import num_computed_tokens, num_hit_tokens
from labengine.scenarios.scenario import (
    Column,
    Scenario,
)


class FreesBeforeCaching(KVCacheManager):
    """Frees the blocks that the next token does not reach, and caches the rest."""

    def register(self, request: Request, num_tokens: int, moment: Moment) -> None:
        """Free the blocks before the next token's window, then register the remaining full blocks."""
        if moment == "computed":
            for group in self.groups:
                group.drop_skipped(request, num_tokens)
        super().register(request, num_tokens, moment)


class KeepsAPage(KVCacheManager):
    """The pull request: frees as late as if the window were at least a page."""

    def register(self, request: Request, num_tokens: int, moment: Moment) -> None:
        """Free the blocks that are max(window, page size) behind, then register."""
        if moment == "computed":
            for group in self.groups:
                group.drop_skipped(request, num_tokens - max(0, group.block_size - (group.spec.window or 0)))
        super().register(request, num_tokens, moment)


class LastLeafDropped(Scenario):
    """A prompt of a page and a half, twice."""

    columns = (Column("labengine", FreesBeforeCaching), Column("labengine"), Column("labengine", KeepsAPage))
    figures = {
        "tokens found again": lambda lab: num_hit_tokens(lab, 1),
        "computed tokens": num_computed_tokens,
    }

    def play(self, lab: Lab) -> None:
        """Run the prompt twice, one after the other."""
        for _ in range(2):
            lab.add(token_ids=range(1, 13), max_tokens=2)
            lab.step(2)
