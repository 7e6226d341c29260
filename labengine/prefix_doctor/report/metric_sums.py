"""Sums over the look-ups and evictions of running engines, which only grow, as a scraper needs them."""

from __future__ import annotations

from dataclasses import dataclass, field

from labengine.prefix_doctor.look_ups.look_up import CAUSES, LookUp
from labengine.prefix_doctor.look_ups.sums import RunningSums

MAX_SETS = 50
"""Most sets of label values of one metric."""

OTHER = "other"
"""The label value that stands for all further ones."""

MAX_LABEL = 64
"""Most characters of a label value, which comes from the stream."""


@dataclass
class LabelledSum:
    """A sum for each set of label values. num_rest: sets kept free for those whose last value is OTHER."""

    num_rest: int = 1
    sums: dict[tuple[str, ...], int] = field(default_factory=dict)

    def add(self, values: tuple[str, ...], number: int) -> None:
        """Add to one set; to the one with OTHER if it is new and there are too many."""
        values = tuple(one.encode("utf-8", "replace").decode()[:MAX_LABEL] for one in values)
        if values not in self.sums and len(self.sums) >= MAX_SETS - self.num_rest:
            values = (*values[:-1], OTHER)
        self.sums[values] = self.sums.get(values, 0) + number


@dataclass
class MetricSums:
    """What the metrics add up. prompts: over first look-ups. missed: of these, tokens by (cause, tenant).

    evicted: blocks by (evictor,). num_gaps: stretches of events that were not seen.
    """

    prompts: RunningSums = field(default_factory=RunningSums)
    missed: LabelledSum = field(default_factory=lambda: LabelledSum(len(CAUSES)))
    evicted: LabelledSum = field(default_factory=LabelledSum)
    num_gaps: int = 0

    def add(self, one: LookUp, tenant: str) -> None:
        """Add a prompt's look-up."""
        self.prompts.add(one)
        for miss in one.misses:
            self.missed.add((miss.cause, tenant), miss.num_tokens)
