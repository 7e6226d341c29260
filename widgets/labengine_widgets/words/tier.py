"""The external tier's contents as a recording shows them, and which of them are pinned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from labengine import events as ev
from labengine.record.fold_state import Key
from labengine.record.timeline import Timeline

TierEvent = ev.BlocksSaved | ev.BlocksLoaded | ev.TierChanged
_KINDS: tuple[type[TierEvent], ...] = (ev.BlocksSaved, ev.BlocksLoaded, ev.TierChanged)


class KnownTier:
    """The known contents of the external tier, in the order in which they came to be known."""

    def __init__(self, held: Iterable[Key] = ()) -> None:
        self._held: dict[Key, None] = dict.fromkeys(held)
        self._left: set[Key] = set()
        self.pins: dict[Key, int] = {}
        """Per pinned content: how many transfers keep it from being evicted."""

    def __iter__(self) -> Iterator[Key]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def note(self, event: TierEvent) -> None:
        """Follow an event. A load shows contents of the tier, unless they had left it before the copy ran."""
        match event:
            case ev.BlocksSaved():
                self._add((group, block_hash) for group, _, _, block_hash in event.transfers if block_hash)
            case ev.BlocksLoaded():
                loaded = ((group, block_hash) for group, _, _, block_hash in event.transfers if block_hash)
                self._add(key for key in loaded if key not in self._left)
            case ev.TierChanged():
                self._drop(event.dropped)
                self._add(event.added)
                self._pin(event.pinned)

    def _add(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._held.setdefault(key)
            self._left.discard(key)

    def _drop(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._held.pop(key, None)
            self._left.add(key)

    def _pin(self, pinned: Iterable[tuple[int, bytes, int]]) -> None:
        for group, block_hash, count in pinned:
            self.pins.pop((group, block_hash), None)
            if count:
                self.pins[group, block_hash] = count


def known_tier(timeline: Timeline | None, until: int | None = None) -> KnownTier:
    """Return the known contents of the external tier before a moment."""
    tier = KnownTier()
    for event in () if timeline is None else timeline.of_kind(_KINDS, stop=until):
        tier.note(event)
    return tier


def kept_contents(timeline: Timeline | None, until: int | None = None) -> list[Key]:
    """Return the contents that the external tier held at a moment, as far as known, in order."""
    return list(known_tier(timeline, until))
