"""How long after its last use content is hit, and how long after it is evicted."""

from __future__ import annotations

from array import array
from collections import Counter
from math import frexp


class Ages:
    """Two histograms over powers of two: the ages of hits, and those of evictions.

    An age is the time since a prompt with the content was last admitted, in seconds or, without a clock, in blocks
    taken from the pool since then.
    """

    def __init__(self) -> None:
        self.hits = Counter[int]()
        self.evictions = Counter[int]()
        """Numbers by exponent: ages of at least 2 ** (exponent - 1), and less than 2 ** exponent."""
        self._admitted = array("d")

    def admit(self, number: int, now: float) -> None:
        """Note when a request used its content."""
        while len(self._admitted) <= number:
            self._admitted.append(now)
        self._admitted[number] = now

    def note_hit(self, last_user: int, now: float) -> None:
        """Count a hit on content that a request used last."""
        self.hits[frexp(now - self._admitted[last_user])[1]] += 1

    def note_eviction(self, last_user: int, now: float) -> None:
        """Count an eviction of content that a request used last."""
        self.evictions[frexp(now - self._admitted[last_user])[1]] += 1

    def histograms(self) -> dict[str, list[tuple[float, int]]]:
        """Return (upper bound, number) for both, in order."""
        return {
            name: [(2.0**exponent, number) for exponent, number in sorted(counts.items())]
            for name, counts in (("hit", self.hits), ("evicted", self.evictions))
        }
