"""The prefixes as rows: consecutive blocks at the same places with the same use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from labengine.vllm.cache_events.cache import EventCache
from labengine.vllm.cache_events.contents import Content
from labengine.vllm.cache_events.holdings import Holding, Place, Presence, place_order
from labengine.vllm.cache_events.reuse import Reuse, ReuseCount
from labengine.vllm.cache_events.tree import PrefixTree

Where = tuple[tuple[Place, Presence], ...]


@dataclass(slots=True)
class Chain:
    """Blocks of one prefix, in order."""

    depth: int
    """Number of branching points before it."""
    is_beginning: bool
    """True for the first blocks of a prompt."""
    is_after_unknown: bool
    """True if it may follow blocks without any event."""
    where: Where
    reuse: Reuse
    """Of each of its blocks."""
    contents: list[Content] = field(default_factory=list)
    holdings: list[Holding] = field(default_factory=list)

    @property
    def token_ids(self) -> list[int] | None:
        """Tokens of all its blocks; None if a block's tokens are unknown."""
        tokens: list[int] = []
        for content in self.contents:
            if content.token_ids is None:
                return None
            tokens += content.token_ids
        return tokens

    @property
    def presence(self) -> Presence:
        """CACHED if its blocks are cached at any place."""
        found = {presence for _, presence in self.where}
        return next((one for one in (Presence.CACHED, Presence.UNKNOWN) if one in found), Presence.GONE)

    @property
    def first_stored(self) -> float | None:
        """The time at which its first block was first stored; None if no event tells."""
        return min((one.first_stored for one in self.holdings if one.first_stored is not None), default=None)

    @property
    def last_stored(self) -> float | None:
        """The time at which one of its blocks was last stored."""
        return max((one.last_stored for one in self.holdings if one.last_stored is not None), default=None)

    @property
    def last_removed(self) -> float | None:
        """The time at which one of its blocks was last removed, or None."""
        return max((one.last_removed for one in self.holdings if one.last_removed is not None), default=None)


class Chains:
    """All chains of a cache, those with the most cached blocks first, each after the chain that it continues."""

    def __init__(self, cache: EventCache) -> None:
        self._cache = cache
        self.tree = PrefixTree(cache)
        self.reuse = ReuseCount(cache, self.tree)
        self._num_cached = self._count_cached()

    def rows(self, limit: int | None = None) -> list[Chain]:
        """Return the first `limit` chains, all by default."""
        found: list[Chain] = []
        for chain in self._chains():
            if limit is not None and len(found) >= limit:
                break
            found.append(chain)
        return found

    def _chains(self) -> Iterator[Chain]:
        waiting = [(start, 0) for start in self._heaviest_last(self.tree.starts)]
        while waiting:
            content, depth = waiting.pop()
            chain = self._begun(content, depth)
            while True:
                following = self.tree.following(content)
                if len(following) != 1 or not self._continues(chain, following[0]):
                    break
                content = following[0]
                self._add(chain, content)
            yield chain
            deeper = depth + (len(following) > 1)
            waiting += [(one, deeper) for one in self._heaviest_last(following)]

    def _begun(self, content: Content, depth: int) -> Chain:
        is_start = self._cache.contents.parent_of(content) is None or self._is_cut(content)
        chain = Chain(
            depth,
            is_start and content.is_placed and content.parent is None,
            is_start and (not content.is_placed or content.parent is not None),
            self._where(content),
            self.reuse.of(content),
        )
        self._add(chain, content)
        return chain

    def _is_cut(self, content: Content) -> bool:
        return any(content is one for one in self.tree.loops)

    def _add(self, chain: Chain, content: Content) -> None:
        chain.contents.append(content)
        chain.holdings += self.tree.held(content).values()

    def _continues(self, chain: Chain, content: Content) -> bool:
        return chain.where == self._where(content) and chain.reuse == self.reuse.of(content)

    def _where(self, content: Content) -> Where:
        held = self.tree.held(content)
        return tuple(
            sorted(((place, one.presence) for place, one in held.items()), key=lambda item: place_order(item[0]))
        )

    def _count_cached(self) -> dict[Content, int]:
        """Return, for each content, the number of cached blocks of it and the contents after it."""
        counted: dict[Content, int] = {}
        for content in reversed(self.tree.order):
            held = self.tree.held(content)
            here = any(holding.presence is Presence.CACHED for holding in held.values())
            counted[content] = here + sum(counted[one] for one in self.tree.following(content))
        return counted

    def _heaviest_last(self, contents: Sequence[Content]) -> list[Content]:
        """Sort by cached blocks; of contents with equally many, the earliest comes last."""
        return sorted(contents, key=lambda one: self._num_cached[one], reverse=True)[::-1]
