"""The recorded traffic on other parts: what a patch would have done with yesterday's requests."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Any, cast

from labengine import events as ev
from labengine.config import ConfigError, EngineConfig
from labengine.core.editions import RECORDED_EDITIONS, edition
from labengine.core.parts import Parts
from labengine.isolation.alone import called_alone
from labengine.isolation.board import Board, NoAnswer
from labengine.isolation.limits import can_fork
from labengine.record.figures import counted
from labengine.record.fold import Fold, surviving
from labengine.record.table import Table
from labengine.session.patch.override import parts_with
from labengine.vllm.conformance.edition_run import arrivals_of, salts_of
from labengine.vllm.conformance.recorded import Recorded
from labengine.vllm.conformance.settings import (
    by_policy,
    config_of,
    edition_for,
    has_priorities,
    longest_of,
)
from labengine.vllm.conformance.traffic import Traffic


@dataclass(frozen=True, slots=True)
class TrafficCost:
    """One engine's cost of the traffic, counted from its events, also for the recorded engine."""

    forward_passes: int = 0
    computed_tokens: int = 0
    hit_tokens: int = 0
    """Tokens that admitted requests found in the cache, including those readmitted after a preemption."""
    preemptions: int = 0
    evicted_blocks: int = 0
    """Number of cached blocks evicted for another request."""
    peak_blocks: int = 0
    """The most blocks in use at one time."""


@dataclass(frozen=True, repr=False)
class Against:
    """The recorded traffic on the recorded engine and on other parts, side by side. names: of the two."""

    title: str
    names: tuple[str, str]
    num_requests: int
    recorded: TrafficCost
    other: TrafficCost
    why_incomplete: str = ""
    """The reason that the recording ends before the traffic; empty if it does not."""

    def __repr__(self) -> str:
        figures = map(_figures, (self.recorded, self.other))
        table = Table(f"{self.title}: {self.num_requests:,} requests", dict(zip(self.names, figures, strict=True)))
        return f"{table}\nThe recording is incomplete: {self.why_incomplete}." if self.why_incomplete else f"{table}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        sides = {"recorded": asdict(self.recorded), "other": asdict(self.other)}
        counts = {"title": self.title, "names": list(self.names), "num_requests": self.num_requests}
        return {**counts, **sides, "why_incomplete": self.why_incomplete}


def _figures(cost: TrafficCost) -> dict[str, int]:
    return {name.replace("_", " "): value for name, value in asdict(cost).items()}


def against(recorded: Recorded, other: object) -> Against:
    """Run a recording's traffic on other parts. Raises ConfigError for an invalid part, or one that does not finish.

    other: an edition's name, Parts, or a class that replaces one part of the edition that the stream is judged by.
    """
    if recorded.piece.is_late:
        raise ConfigError("the traffic cannot be repeated: the recording begins late and lacks the earlier requests")
    parts = _parts(recorded, other)
    events = recorded.piece.timeline.events()
    traffic = Traffic.of(events, salts_of(recorded.piece), arrivals_of(recorded.piece))
    config, longest = config_of(recorded.header, recorded.piece), longest_of(recorded.header)
    return Against(
        title=recorded.title,
        names=(recorded.name, parts.name),
        num_requests=len(traffic.requests),
        recorded=cost_of(events),
        other=_cost_on(parts, traffic, config, longest),
        why_incomplete=recorded.why_incomplete,
    )


def _cost_on(parts: Parts, traffic: Traffic, config: EngineConfig, longest: int | None) -> TrafficCost:
    """Return the parts' cost of the traffic, run in a copied process if possible, because parts may end it."""
    if not can_fork():
        return cost_of(traffic.run(config, parts, longest))

    def run(board: Board) -> TrafficCost | str:
        try:
            return cost_of(traffic.run(config, parts, longest, board.begin))
        except ConfigError as error:
            return str(error)

    found = called_alone(run, inf, lambda name, text: getattr(sys, name).write(text), is_bounded=False)
    if isinstance(found, NoAnswer):
        raise ConfigError(f"{parts.name} does not return from step {found.begun} of the traffic: {found.reason}")
    if isinstance(found, str):
        raise ConfigError(found)
    return cast(TrafficCost, found)


def _parts(recorded: Recorded, other: object) -> Parts:
    if isinstance(other, str):
        if other in RECORDED_EDITIONS:
            return by_policy(RECORDED_EDITIONS[other], recorded.header)
        return edition(other, "priority" if has_priorities(recorded.header) else "fcfs")
    kinds = [group.kind for group in recorded.piece.fold.groups]
    return parts_with(other, edition_for(recorded.header), kinds)


def cost_of(events: Sequence[ev.Event]) -> TrafficCost:
    """Return a run's cost; a rolled-back step costs nothing."""
    figures, state, peak = counted(events), Fold(), 0
    for i in surviving(events):
        state.apply(events[i])
        peak = max(peak, state.num_used_blocks)
    return TrafficCost(
        forward_passes=figures.num_forward_passes,
        computed_tokens=figures.num_computed,
        hit_tokens=figures.num_hit,
        preemptions=figures.num_preemptions,
        evicted_blocks=figures.num_evicted_blocks,
        peak_blocks=peak,
    )
