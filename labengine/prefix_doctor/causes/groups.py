"""Prompts that lost tokens for one cause, summed up in bounded memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from labengine.prefix_doctor.causes.content import MIN_STRETCH

MAX_SHOWN = 6
MAX_EXAMPLES = 3
MAX_SAMPLES = 32
MAX_DISTINCT = 4096
"""Values told apart, and entries of a counter; the lightest go first."""

MAX_VALUE = 64
"""Tokens kept of a varying text."""

SOME_BEFORE, SOME_AFTER = 12, 12
"""Tokens of an example around the divergence."""


@dataclass(frozen=True, slots=True)
class RawExample:
    """An example whose tokens have not become text yet. mine, its: text where the keys of two prompts differ."""

    name: str
    other: str
    position: int
    num_lost: int
    before: list[int]
    mine: list[int] | str
    its: list[int] | str
    again: list[int]


@dataclass
class Group:
    """Prompts with one cause. details: lost tokens by what the cause names: an evictor, a salt, a message."""

    num_prompts: int = 0
    num_lost: int = 0
    shown: list[int] = field(default_factory=list)
    examples: list[RawExample] = field(default_factory=list)
    details: Counter[object] = field(default_factory=Counter)

    def count(self, num_lost: int, *numbers: int | None) -> bool:
        """Count one prompt. Return True if it should become an example. numbers: prompts that show it."""
        self.num_prompts += 1
        self.num_lost += num_lost
        for number in numbers:
            if number is not None and number not in self.shown and len(self.shown) < MAX_SHOWN:
                self.shown.append(number)
        return len(self.examples) < MAX_EXAMPLES

    def detail(self, key: object, num_lost: int) -> None:
        """Add lost tokens to a detail."""
        self.details[key] += num_lost
        if len(self.details) > 2 * MAX_DISTINCT:
            self.details = Counter(dict(self.details.most_common(MAX_DISTINCT)))


@dataclass
class ShortGroup(Group):
    """Prompts that share less than a block. shares: their number by (shared tokens, hit tokens)."""

    shares: Counter[tuple[int, int]] = field(default_factory=Counter)

    def share(self, shared: int, num_hit: int) -> None:
        """Count a prompt; of more than 4,096 different ones, only those that came first."""
        if len(self.shares) < MAX_DISTINCT or (shared, num_hit) in self.shares:
            self.shares[shared, num_hit] += 1


@dataclass(frozen=True, slots=True)
class Value:
    """The text in which a prompt differs from its template, with the text around it."""

    before: list[int]
    value: list[int]
    after: list[int]


@dataclass
class VaryingGroup(Group):
    """Prompts with text that varies from one to the next. values: of some prompts. distinct: hashes of all values."""

    values: list[Value] = field(default_factory=list)
    distinct: set[int] = field(default_factory=set)


ALMOST_ALL, MOST, HALF = 0.95, 0.8, 0.5
"""Shares of the prompts."""

GOOD_PART = 0.25
"""The share of tokens that counts."""


@dataclass
class TextGroup(VaryingGroup):
    """Prompts that have the text of one template again, behind text that differs.

    template: the first prompt with the text, packed; number: its. num_others: prompts of another tenant than the
    template's.
    """

    number: int = -1
    template: bytes = b""
    tenant: str = ""
    num_others: int = 0
    again: Counter[int] = field(default_factory=Counter)
    """Prompts that hit behind a value which had come before, by the hash of that value."""
    end: int = 0
    """Token of the template before which the values end."""
    positions: Counter[int] = field(default_factory=Counter)
    """Prompts by the length of the prefix that they share with the template."""
    covered: Counter[int] = field(default_factory=Counter)
    """Where stretches that prompts share with the template, behind the prefix, begin (+1) and end (-1)."""

    @property
    def position(self) -> int:
        """The length of the prefix that almost all prompts share with the template."""
        num_prompts = 0
        for place in sorted(self.positions, reverse=True):
            num_prompts += self.positions[place]
            if num_prompts >= ALMOST_ALL * self.num_prompts:
                return place
        return 0

    def behind(self) -> list[tuple[int, int]]:
        """Return the long parts of the template behind the prefix that most prompts share.

        [] if they are not a good part of what is lost: then prompts share text, but no common core.
        """
        parts = self._behind(MOST) or self._behind(HALF)
        num_core = self.num_prompts * sum(end - start for start, end in parts)
        return parts if num_core > GOOD_PART * self.num_lost else []

    def _behind(self, share: float) -> list[tuple[int, int]]:
        parts = [(max(start, self.position), end) for start, end in self._shared(share)]
        return [(start, end) for start, end in parts if end - start >= MIN_STRETCH]

    def _shared(self, share: float) -> list[tuple[int, int]]:
        found, depth, since = list[tuple[int, int]](), 0, -1
        for place in sorted(self.covered):
            depth += self.covered[place]
            if depth >= share * self.num_prompts and since < 0:
                since = place
            elif depth < share * self.num_prompts and since >= 0:
                found.append((since, place))
                since = -1
        return found


@dataclass
class HistoryGroup(VaryingGroup):
    """Prompts that continue an earlier one whose text was changed.

    message: the one in which they differ; -1 if messages are unknown. num_cut: tokens of the earlier prompt that are
    missing; num_put: tokens that stand there instead.
    """

    message: int = -1
    num_cut: int = 0
    num_put: int = 0
