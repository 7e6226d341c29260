"""The fold of KV events: which blocks are cached where, their content, and what is unknown."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

from labengine.vllm.cache_events.contents import BlockContents, Content, hash_text
from labengine.vllm.cache_events.holdings import Holding, Place, Presence, is_device
from labengine.vllm.cache_events.schema import Batch, BlockHash, BlocksRemoved, BlocksStored, CacheCleared, KVEvent

MAX_CONTRADICTIONS = 100
Of = Callable[[Place], bool]


class EventCache:
    """The caches that result from the batches of all sources.

    max_blocks: contents that are kept; beyond it, contents that are gone are forgotten, the oldest first.
    """

    def __init__(self, max_blocks: int) -> None:
        self._max_blocks = max_blocks
        self.contradictions: list[str] = []
        """The first contradictions; `num_contradictions` counts all."""
        self.num_contradictions = 0
        self.contents = BlockContents(self._contradict)
        self.holdings: dict[BlockHash, dict[Place, Holding]] = {}
        self.places: set[Place] = set()
        """All places at which a block was stored."""
        self.group_kinds: dict[Place, str] = {}
        self.block_sizes: dict[Place, set[int]] = defaultdict(set)
        self.num_events: Counter[str] = Counter()
        self.unknown_kinds: Counter[str] = Counter()
        self.num_early_removals = 0
        """Number of removals of blocks that were stored before the stream began, or in a gap."""
        self.num_forgotten = 0
        self.newest: float | None = None
        """Time of the newest batch."""
        self._incomplete: set[tuple[int, int | None]] = set()
        self._forget_at = max_blocks
        self._where = ""

    def is_incomplete(self, place: Place) -> bool:
        """Return True if events of this rank are missing, at its beginning or in a gap."""
        return place[:2] in self._incomplete

    def apply(self, source: int, batch: Batch, where: str) -> None:
        """Apply a batch. where: its name in contradictions."""
        self._where = where
        self.newest = batch.at if self.newest is None else max(self.newest, batch.at)
        for event in batch.events:
            self._take(source, batch, event)
        if len(self.contents) > self._forget_at:
            self._forget_gone()

    def miss(self, source: int, rank: int | None) -> None:
        """Note that events of a source's rank are missing here."""
        self._incomplete.add((source, rank))
        self._each(lambda place: place[:2] == (source, rank), Holding.doubt)

    def restart(self, source: int, rank: int | None) -> None:
        """Note that a source's engine restarted, with an empty cache."""
        self._incomplete.discard((source, rank))
        at = self.newest or 0.0
        self._each(lambda place: place[:2] == (source, rank), lambda holding: holding.vanish(at))

    def held(self, content: Content) -> dict[Place, Holding]:
        """Return the present and past places of a content."""
        held = self.holdings.get(content.hash, {})
        if self.contents.has_one_size(content.hash):
            return held
        return {place: one for place, one in held.items() if self.contents.find(content.hash, one.size) is content}

    def presences(self) -> dict[Place, Counter[Presence]]:
        """Return the numbers of cached, unknown and gone blocks at each place."""
        counted: dict[Place, Counter[Presence]] = defaultdict(Counter)
        for held in self.holdings.values():
            for place, holding in held.items():
                counted[place][holding.presence] += 1
        return dict(counted)

    def _take(self, source: int, batch: Batch, event: KVEvent) -> None:
        self.num_events[type(event).__name__] += 1
        match event:
            case BlocksStored():
                self._store(Place(source, batch.rank, event.tier, event.group), event, batch.at)
            case BlocksRemoved():
                self._remove(Place(source, batch.rank, event.tier, event.group), event, batch.at)
            case CacheCleared():
                self._clear(source, batch)
            case _:
                self.unknown_kinds[event.kind] += 1

    def _store(self, place: Place, event: BlocksStored, at: float) -> None:
        self.contents.learn(event)
        self.places.add(place)
        if event.group_kind is not None:
            self.group_kinds[place] = event.group_kind
        if event.block_size and event.hashes:
            self.block_sizes[place].add(event.block_size)
        for block_hash in event.hashes:
            holding = self.holdings.setdefault(block_hash, {}).setdefault(place, Holding())
            holding.size = event.block_size or holding.size
            holding.store(at)

    def _remove(self, place: Place, event: BlocksRemoved, at: float) -> None:
        for block_hash in event.hashes:
            holding = self.holdings.get(block_hash, {}).get(place)
            if holding is not None and holding.remove(at):
                continue
            if self.is_incomplete(place):
                self.num_early_removals += 1
            else:
                self._contradict(f"block {hash_text(block_hash)} was removed, but it was not stored there")

    def _clear(self, source: int, batch: Batch) -> None:
        here = (source, batch.rank)
        self._each(lambda place: place[:2] == here and is_device(place), lambda holding: holding.vanish(batch.at))
        self._each(lambda place: place[:2] == here and not is_device(place), Holding.may_vanish)

    def _each(self, of: Of, change: Callable[[Holding], None]) -> None:
        for held in self.holdings.values():
            for place, holding in held.items():
                if of(place):
                    change(holding)

    def _contradict(self, text: str) -> None:
        self.num_contradictions += 1
        if len(self.contradictions) < MAX_CONTRADICTIONS:
            self.contradictions.append(f"{self._where}: {text}")

    def _forget_gone(self) -> None:
        """Forget gone contents, down to three quarters of the limit, to do this rarely."""
        num_too_many = len(self.contents) - self._max_blocks * 3 // 4
        gone = [one for one in self.contents.hashes() if _is_gone(self.holdings.get(one, {}))]
        for block_hash in gone[:num_too_many]:
            self.contents.forget(block_hash)
            self.holdings.pop(block_hash, None)
            self.num_forgotten += 1
        self._forget_at = max(self._max_blocks, len(self.contents) * 9 // 8)


def _is_gone(held: dict[Place, Holding]) -> bool:
    return all(holding.presence is Presence.GONE for holding in held.values())
