"""How often prefixes were used and hit, as far as the stored blocks prove it.

Whenever a request of vLLM fills a block, an event says that it is stored, even if another block has the same content.
A request that stores a block but did not store the one before it must have found that one in the cache. So

    uses(block) >= max(times it was stored, sum of uses of the blocks that follow it)
    hits(block)  = uses(block) - times it was stored

Hits after which a request fills no further block leave no trace, so both are lower bounds.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from labengine.vllm.cache_events.cache import EventCache
from labengine.vllm.cache_events.contents import Content
from labengine.vllm.cache_events.holdings import Holding, Place, is_device
from labengine.vllm.cache_events.tree import PrefixTree

FULL = ("full_attention", "mla_attention")
"""Kinds of groups that keep every block of a prefix."""


NOT_HELD = Holding()


class Reuse(NamedTuple):
    """The known uses of one block by requests of all ranks."""

    num_stored: int
    num_uses: int
    """A lower bound; the number of times it was stored if hits are unknown."""
    num_hits: int | None
    """A lower bound; None if unknown."""


class ReuseCount:
    """Counts uses of every block of a tree. why_unknown: reasons that hits are unknown for some ranks."""

    def __init__(self, cache: EventCache, tree: PrefixTree) -> None:
        self._cache, self._tree = cache, tree
        self.why_unknown: list[str] = []
        self._num_stored: dict[Content, int] = defaultdict(int)
        self._num_uses: dict[Content, int] = defaultdict(int)
        self._num_hits: dict[Content, int | None] = defaultdict(int)
        for place in self._counted_places():
            self._count(place, self._why_unknown(place))

    def of(self, content: Content) -> Reuse:
        """Return the counts of one block."""
        num_stored = self._num_stored[content]
        return Reuse(
            num_stored, max(num_stored, self._num_uses[content]), self._num_hits[content] if num_stored else None
        )

    def _counted_places(self) -> list[Place]:
        """Return, for each rank, the device's blocks of the first group (of full attention, if kinds are told)."""
        ranks: dict[tuple[int, int | None], list[Place]] = defaultdict(list)
        for place in self._cache.places:
            if is_device(place) and place.tier.owner is None:
                ranks[place[:2]].append(place)
        return [min(places, key=self._rank_of) for places in ranks.values()]

    def _rank_of(self, place: Place) -> tuple[bool, int]:
        return self._cache.group_kinds.get(place) not in FULL, -1 if place.group is None else place.group

    def _why_unknown(self, place: Place) -> str:
        kind = self._cache.group_kinds.get(place)
        if kind is None:
            return "the engine does not say that it reports each request's blocks (SGLang, or an older vLLM)"
        if kind not in FULL:
            return f"no group of blocks has full attention ({kind})"
        if self._cache.is_incomplete(place):
            return "events are missing"
        if len(self._cache.block_sizes[place]) > 1:
            return "some stored blocks are not full"
        return ""

    def _count(self, place: Place, why: str) -> None:
        if why and why not in self.why_unknown:
            self.why_unknown.append(why)
        passed: dict[Content, int] = {}
        for content in reversed(self._tree.order):
            holding = self._tree.held(content).get(place, NOT_HELD)
            following = sum(passed[one] for one in self._tree.following(content))
            passed[content] = num_uses = max(holding.stored_in_piece, following)
            self._num_stored[content] += holding.num_stored
            if why and holding.num_stored:
                self._num_hits[content] = None
            elif not why and num_uses:
                self._num_uses[content] += num_uses
                known = self._num_hits[content]
                self._num_hits[content] = None if known is None else known + num_uses - holding.stored_in_piece
