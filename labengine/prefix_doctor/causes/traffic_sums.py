"""Sums over a traffic: by tenant, over time, and by how long content stayed unused; in bounded memory."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from labengine.prefix_doctor.traffic.prompt import Prompt

MAX_TENANTS = 50
MAX_PARTS = 40
"""Parts of the traffic over time; twice as many prompts make a part once there would be more."""

OTHERS = "others"


@dataclass(slots=True)
class Part:
    """Sums of some prompts. num_lost: tokens computed again that a finding names. arrival: of the first prompt."""

    name: str
    num_prompts: int = 0
    num_tokens: int = 0
    num_hit: int = 0
    num_lost: int = 0
    arrival: float | None = None

    def add(self, other: Part) -> None:
        """Add another part's sums."""
        self.num_prompts += other.num_prompts
        self.num_tokens += other.num_tokens
        self.num_hit += other.num_hit
        self.num_lost += other.num_lost

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


class Parts:
    """A traffic's prompts by tenant, and in equal parts in the order of their admission."""

    def __init__(self) -> None:
        self.total = Part("all")
        self._tenants: dict[str, Part] = {}
        self._parts: list[Part] = []
        self._size = 1

    def add(self, prompt: Prompt, num_tokens: int, num_hit: int, num_lost: int) -> None:
        """Add one prompt."""
        one = Part("", 1, num_tokens, num_hit, num_lost)
        self.total.add(one)
        self._tenant(prompt.tenant).add(one)
        if not self._parts or self._parts[-1].num_prompts >= self._size:
            self._begin(prompt.arrival)
        self._parts[-1].add(one)

    def _tenant(self, name: str) -> Part:
        known = name in self._tenants or len(self._tenants) < 20 * MAX_TENANTS
        return self._tenants.setdefault(name if known else OTHERS, Part(name if known else OTHERS))

    def _begin(self, arrival: float | None) -> None:
        if len(self._parts) == MAX_PARTS:
            pairs = zip(self._parts[::2], self._parts[1::2], strict=True)
            for one, other in pairs:
                one.add(other)
            self._parts, self._size = self._parts[::2], 2 * self._size
        self._parts.append(Part("", arrival=arrival))

    def by_tenant(self) -> list[Part]:
        """Return the sums of at most 50 tenants, those with most tokens first, then of the others; [] without names."""
        if self._tenants.keys() <= {""}:
            return []
        found = sorted(self._tenants.values(), key=lambda part: (part.name == OTHERS, -part.num_tokens))
        others = Part(OTHERS)
        for part in found[MAX_TENANTS:]:
            others.add(part)
        return [*found[:MAX_TENANTS], *([others] if others.num_prompts else [])]

    def over_time(self) -> list[Part]:
        """Return the sums of at most 40 parts in the order of admission; the last one may be smaller."""
        first = 0
        for part in self._parts:
            part.name = f"prompts {first:,} to {first + part.num_prompts - 1:,}"
            first += part.num_prompts
        return self._parts


@dataclass(frozen=True)
class Ages:
    """Tokens by how many blocks of KV were written since their last use: {n: tokens} for 2**(n-1) <= blocks < 2**n.

    hit: at a hit. evicted: when they were wanted again, after their eviction.
    """

    hit: dict[int, int]
    evicted: dict[int, int]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {name: {str(age): number for age, number in found.items()} for name, found in asdict(self).items()}


class Uses:
    """The moment at which each prompt used its prefix: in tokens written so far, in seconds, and in steps."""

    def __init__(self, unit: int) -> None:
        self._unit, self._now = unit, 0
        self._written, self._arrivals, self._steps = array("q"), array("d"), array("q")
        self._hit, self._evicted = Counter[int](), Counter[int]()

    def add(self, number: int, prompt: Prompt, step: int, num_missed: int) -> None:
        """Note a prompt that computes num_missed tokens."""
        for kept in (self._written, self._steps):
            kept.extend([0] * (number + 1 - len(kept)))
        self._arrivals.extend([0.0] * (number + 1 - len(self._arrivals)))
        self._now += num_missed + prompt.num_answer
        self._written[number], self._arrivals[number], self._steps[number] = self._now, prompt.arrival or 0.0, step

    def since(self, other: int | None, prompt: Prompt, step: int) -> tuple[int, float, int] | None:
        """Return the blocks, seconds and steps since another prompt was admitted; None if it is unknown."""
        if other is None or not 0 <= other < len(self._written):
            return None
        blocks = (self._now - self._written[other]) // self._unit
        return blocks, (prompt.arrival or 0.0) - self._arrivals[other], step - self._steps[other]

    def count(self, blocks: int, num_hit: int, num_evicted: int) -> None:
        """Count tokens whose last use is that many blocks ago."""
        self._hit[blocks.bit_length()] += num_hit
        self._evicted[blocks.bit_length()] += num_evicted

    def ages(self) -> Ages:
        """Return the tokens by age."""
        return Ages(*({age: one[age] for age in sorted(one) if one[age]} for one in (self._hit, self._evicted)))
