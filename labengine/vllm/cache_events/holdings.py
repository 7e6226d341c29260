"""Whether a block is cached at one place, from its events: a least and a most number of copies."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from labengine.vllm.cache_events.schema import BlockTier

DEVICE = "GPU"
"""vLLM's and SGLang's name for the engine's memory, whatever the device."""


class Presence(Enum):
    """Whether a block can be found, as far as known."""

    CACHED = "cached"
    UNKNOWN = "unknown"
    GONE = "gone"


class Place(NamedTuple):
    """One cache: a rank's blocks of one group, in one tier."""

    source: int
    """Number of the publisher, from 0."""
    rank: int | None
    tier: BlockTier
    group: int | None


def place_order(place: Place) -> tuple[int, int, bool, str, int]:
    """Return a sort key for places: publisher, rank, the device before other tiers, group."""
    rank = -1 if place.rank is None else place.rank
    return place.source, rank, not is_device(place), repr(place.tier), -1 if place.group is None else place.group


def is_device(place: Place) -> bool:
    """Return True for the engine's memory, also if no tier is named."""
    return place.tier.medium in (None, DEVICE)


@dataclass(slots=True)
class Holding:
    """The events of one block at one place.

    A block that is stored again is a second copy (vLLM keeps both, and reports the removal of each), or a hit that vLLM
    was asked to report. Events do not tell which, so the number of copies lies between `least` and `most`.
    """

    size: int = 0
    """Number of tokens in the block; 0 if the engine did not say."""
    least: int = 0
    most: int = 0
    num_stored: int = 0
    stored_in_piece: int = 0
    """Since the last gap."""
    first_stored: float | None = None
    last_stored: float | None = None
    last_removed: float | None = None

    @property
    def presence(self) -> Presence:
        """Whether the block is cached here."""
        if self.least:
            return Presence.CACHED
        return Presence.UNKNOWN if self.most else Presence.GONE

    def store(self, at: float) -> None:
        """Note that the block is cached."""
        self.least, self.most = max(self.least, 1), self.most + 1
        self.num_stored += 1
        self.stored_in_piece += 1
        self.first_stored = at if self.first_stored is None else self.first_stored
        self.last_stored = at

    def remove(self, at: float) -> bool:
        """Note that a copy is gone; return False if there could not be any."""
        was_possible = self.most > 0
        self.least, self.most = max(self.least - 1, 0), max(self.most - 1, 0)
        self.last_removed = at
        return was_possible

    def vanish(self, at: float) -> None:
        """Note that no copy is left."""
        if self.most:
            self.last_removed = at
        self.least = self.most = 0

    def may_vanish(self) -> None:
        """Note that copies may be gone without an event."""
        self.least = 0

    def doubt(self) -> None:
        """Note that events may be missing."""
        self.least, self.most = 0, max(self.most, 1)
        self.stored_in_piece = 0
