"""Evicted text that was wanted again: by whom it was evicted, and after how long it was wanted."""

from __future__ import annotations

from array import array
from bisect import insort
from dataclasses import dataclass, field

from labengine.prefix_doctor.causes.groups import Group

LONG = 8
"""A prompt of so many times the median length is long."""

FEW, FEW_SHARE = 3, 0.02
"""Requests, and the share of all prompts, that count as one or few."""

MAX_LENGTHS = 2048


@dataclass
class Evictions(Group):
    """Prompts whose text was evicted. details: lost tokens by evicting request; None is the prompt itself."""

    num_decode: int = 0
    """Lost tokens whose blocks were taken for answers."""
    ages: list[tuple[int, float, int]] = field(default_factory=list)
    """Blocks, seconds and steps between the last use and the look-up, of some prompts in ascending order."""

    def age(self, one: tuple[int, float, int]) -> None:
        """Note an age; every second one of more than 2,048 is dropped."""
        insort(self.ages, one)
        if len(self.ages) > MAX_LENGTHS:
            del self.ages[::2]


class Lengths:
    """The lengths of all prompts by number."""

    def __init__(self) -> None:
        self._lengths = array("i")

    def add(self, number: int, num_tokens: int) -> None:
        """Note a prompt's length."""
        self._lengths.extend([0] * (number + 1 - len(self._lengths)))
        self._lengths[number] = num_tokens

    def __getitem__(self, number: int) -> int:
        return self._lengths[number] if 0 <= number < len(self._lengths) else 0

    @property
    def long(self) -> int:
        """The length from which on a prompt is long."""
        some = sorted(length for length in self._lengths[:: len(self._lengths) // MAX_LENGTHS + 1] if length)
        return LONG * some[len(some) // 2] if some else 0


def by_few(group: Evictions, lengths: Lengths, num_prompts: int) -> dict[int, int]:
    """Return the lost tokens by evictor if one or few requests, or long prompts, took at least half of them; or {}."""
    known = {one: lost for one, lost in group.details.items() if isinstance(one, int)}
    long = {one: lost for one, lost in known.items() if lengths[one] >= lengths.long}
    few = dict(sorted(known.items(), key=lambda pair: -pair[1])[: min(FEW, int(FEW_SHARE * num_prompts) or 1)])
    for found in (long, few):
        if found and 2 * sum(found.values()) >= group.num_lost:
            return found
    return {}
