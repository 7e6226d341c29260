"""Whether a block is cached at one place, as far as events tell: between a least and a most number of copies."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from labengine.vllm.cache_events.schema import BlockTier

DEVICE = "GPU"
"""vLLM's and SGLang's name of the engine's own memory, whatever the device is."""


class Presence(Enum):
    """Whether a block can be found."""

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
    """Return what places are sorted by: publisher, rank, the device before other tiers, group."""
    rank = -1 if place.rank is None else place.rank
    return place.source, rank, not is_device(place), repr(place.tier), -1 if place.group is None else place.group


def is_device(place: Place) -> bool:
    """Return True for the engine's own memory; it is that too if no tier is named."""
    return place.tier.medium in (None, DEVICE)


@dataclass(slots=True)
class Holding:
    """What events told of one block at one place.

    A block that is stored again is a second copy (vLLM keeps both, and says of each that it is removed), or a hit that
    vLLM was asked to report. Events do not tell which; so copies are known to lie between `least` and `most`.
    """

    size: int = 0
    """Tokens of the block; 0 if the engine did not say."""
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
        """Take in that the block is cached."""
        self.least, self.most = max(self.least, 1), self.most + 1
        self.num_stored += 1
        self.stored_in_piece += 1
        self.first_stored = at if self.first_stored is None else self.first_stored
        self.last_stored = at

    def remove(self, at: float) -> bool:
        """Take in that a copy is gone; return False if there could be none."""
        was_possible = self.most > 0
        self.least, self.most = max(self.least - 1, 0), max(self.most - 1, 0)
        self.last_removed = at
        return was_possible

    def vanish(self, at: float) -> None:
        """Take in that no copy is left."""
        if self.most:
            self.last_removed = at
        self.least = self.most = 0

    def may_vanish(self) -> None:
        """Take in that copies may have gone untold."""
        self.least = 0

    def doubt(self) -> None:
        """Take in that events may have been missed."""
        self.least, self.most = 0, max(self.most, 1)
        self.stored_in_piece = 0
