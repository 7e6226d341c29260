"""Sums over look-ups: tokens found, and tokens missed by cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from labengine.prefix_doctor.look_ups.look_up import CAUSES, Cause, LookUp


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of tokens: num_tokens = num_hit + num_external + all of missed."""

    num_look_ups: int
    num_tokens: int
    num_hit: int
    num_external: int
    missed: dict[Cause, int]

    @classmethod
    def of(cls, look_ups: Iterable[LookUp]) -> Sums:
        """Add up look-ups."""
        running = RunningSums()
        for one in look_ups:
            running.add(one)
        return running.sums

    @property
    def rows(self) -> list[tuple[str, int]]:
        """The labels and their numbers of tokens."""
        external = [("found in the external tier", self.num_external)] if self.num_external else []
        return [
            ("hit", self.num_hit),
            *external,
            *((CAUSES[cause], number) for cause, number in self.missed.items()),
        ]

    def share(self, num_tokens: int) -> str:
        """Return a number of tokens as a percentage of all."""
        return f"{100 * num_tokens / self.num_tokens:.1f} %" if self.num_tokens else ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        counts = {"num_look_ups": self.num_look_ups, "num_tokens": self.num_tokens, "num_hit": self.num_hit}
        return {**counts, "num_external": self.num_external, "missed": dict(self.missed)}


class RunningSums:
    """Adds up look-ups one by one."""

    def __init__(self) -> None:
        self._missed = Counter[Cause]()
        self._num_look_ups = self._num_tokens = self._num_hit = self._num_external = 0

    def add(self, one: LookUp) -> None:
        """Add one look-up."""
        self._num_look_ups += 1
        self._num_tokens += one.num_tokens
        self._num_hit += one.num_hit
        self._num_external += one.num_external
        for miss in one.misses:
            self._missed[miss.cause] += miss.num_tokens

    @property
    def sums(self) -> Sums:
        """The sums so far."""
        missed = {cause: self._missed[cause] for cause in CAUSES if self._missed[cause]}
        return Sums(self._num_look_ups, self._num_tokens, self._num_hit, self._num_external, missed)
