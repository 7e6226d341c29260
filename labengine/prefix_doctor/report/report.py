"""A report: all that the doctor found out about a traffic, ready to be printed, drawn, or written as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from labengine.prefix_doctor.causes.finding import Finding
from labengine.prefix_doctor.look_ups.look_up import LookUp
from labengine.prefix_doctor.look_ups.sums import Sums
from labengine.prefix_doctor.play.figures import Figures
from labengine.prefix_doctor.play.model_config import Capacity

SCHEMA = "labengine.doctor/1"
"""Name and version of the JSON: a new key leaves the version, a changed or removed one raises it."""

SETTINGS = (
    "edition",
    "num_blocks",
    "block_size",
    "groups",
    "max_num_seqs",
    "max_num_batched_tokens",
    "num_replicas",
    "routing",
    "clock",
)
"""The settings that a report tells."""

CurveName = Literal["pool", "block_size", "max_num_batched_tokens", "state_interval"]
Histogram = tuple[tuple[float, int], ...]
"""(exclusive upper bound, tokens) of each bucket, in order."""


@dataclass(frozen=True, slots=True)
class Point:
    """The same traffic with another value of one setting. bound_hit_rate: by Belady's rule, which knows the future."""

    value: int
    figures: Figures
    bound_hit_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Curve:
    """Runs that differ in one setting, in order. unit: of the values. current: the value of the examined run."""

    name: CurveName
    unit: str
    points: tuple[Point, ...]
    current: int


class TenantTokens(NamedTuple):
    """The prompt tokens of one tenant: all, found in the cache, and lost to findings."""

    tenant: str
    num_tokens: int
    num_hit: int
    num_lost: int


class Span(NamedTuple):
    """The prompt tokens that arrived from start up to end, in `over_time_unit`."""

    start: float
    end: float
    num_tokens: int
    num_hit: int
    num_lost: int


@dataclass(frozen=True, slots=True)
class Ages:
    """Tokens by the age of their content when a prompt has them again: hit, or evicted before.

    unit: of the ages, which are those since the last use. "blocks": written since then.
    """

    unit: Literal["blocks"]
    hit: Histogram
    evicted: Histogram


@dataclass(frozen=True)
class Report:
    """What the doctor found out.

    settings: by the names in SETTINGS, groups and clock in words; None, or left out, where unknown. unit: tokens
    between two places at which a hit may end. sums_again: of look-ups after preemptions. findings: costliest first.
    no_fault: the sentence if there are none. look_ups: empty for large traffic. clock_note: a sentence on the clock's
    residuals. bytes_per_token: of KV. capacity: of the pool; None without a model. command: what was typed, for a line
    that shows a finding; empty in Python.
    """

    title: str
    settings: Mapping[str, Any]
    unit: int
    figures: Figures
    sums: Sums
    sums_again: Sums
    findings: tuple[Finding, ...] = ()
    no_fault: str = ""
    curves: tuple[Curve, ...] = ()
    by_tenant: tuple[TenantTokens, ...] = ()
    over_time: tuple[Span, ...] = ()
    over_time_unit: Literal["prompts", "seconds"] = "prompts"
    ages: Ages | None = None
    look_ups: tuple[LookUp, ...] = ()
    notes: tuple[str, ...] = ()
    is_partial: bool = False
    clock_note: str = ""
    bytes_per_token: int | None = None
    currency: str = ""
    capacity: Capacity | None = None
    command: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, as docs/doctor_json.md describes them."""
        return {
            "schema": SCHEMA,
            "title": self.title,
            "is_partial": self.is_partial,
            "settings": {name: _plain(self.settings.get(name)) for name in SETTINGS},
            "unit": self.unit,
            "figures": self.figures.to_dict(),
            "sums": self.sums.to_dict(),
            "sums_again": self.sums_again.to_dict(),
            "findings": [one.to_dict() for one in self.findings],
            "no_fault": self.no_fault,
            "curves": [_plain_curve(one) for one in self.curves],
            "by_tenant": [one._asdict() for one in self.by_tenant],
            "over_time": {"unit": self.over_time_unit, "spans": [one._asdict() for one in self.over_time]},
            "ages": None if self.ages is None else _plain_ages(self.ages),
            "prices": {
                "clock_note": self.clock_note,
                "bytes_per_token": self.bytes_per_token,
                "currency": self.currency,
            },
            "capacity": None if self.capacity is None else asdict(self.capacity),
            "notes": list(self.notes),
            "look_ups": [one.to_dict() for one in self.look_ups],
        }


def _plain(setting: Any) -> Any:
    return list(setting) if isinstance(setting, tuple) else setting


def _plain_curve(curve: Curve) -> dict[str, Any]:
    points = [
        {"value": one.value, "bound_hit_rate": one.bound_hit_rate, "figures": one.figures.to_dict()}
        for one in curve.points
    ]
    return {"name": curve.name, "unit": curve.unit, "current": curve.current, "points": points}


def _plain_ages(ages: Ages) -> dict[str, Any]:
    plain = {
        name: [{"below": bound, "num_tokens": number} for bound, number in histogram]
        for name, histogram in (("hit", ages.hit), ("evicted", ages.evicted))
    }
    return {"unit": ages.unit, **plain}
