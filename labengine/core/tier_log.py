"""What an external tier does of its own accord: it evicts content, and pins it."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from labengine.core.block import Key


class TierChanges(NamedTuple):
    """What a tier did since it was last asked."""

    dropped: tuple[Key, ...]
    pinned: tuple[tuple[int, bytes, int], ...]
    """(group, block hash, number of pins)."""


class TierLog:
    """Changes of a tier since they were last taken. A tier's threads may write to it while the engine reads."""

    def __init__(self) -> None:
        self._noted: deque[tuple[Key, int | None]] = deque()
        """(key, number of its pins), or (key, None) for a dropped key; oldest first."""

    def note_dropped(self, key: Key) -> None:
        """Note that a content left the tier."""
        self._noted.append((key, None))

    def note_pins(self, key: Key, count: int) -> None:
        """Note how many transfers now keep a content from being evicted; 0 for none."""
        self._noted.append((key, count))

    def take(self) -> TierChanges:
        """Return the changes since the last call."""
        dropped: dict[Key, None] = {}
        pins: dict[Key, int] = {}
        while self._noted:
            key, count = self._noted.popleft()
            if count is None:
                dropped[key] = None
            else:
                pins[key] = count
        return TierChanges(tuple(dropped), tuple((*key, count) for key, count in pins.items()))
