"""The same requests in pools of other sizes, by default twice as large."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from labengine import events as ev
from labengine.config import ConfigError
from labengine.prefix_doctor.look_ups.examine import examine
from labengine.prefix_doctor.look_ups.recorded_engine import RecordedEngine, Repeatable
from labengine.prefix_doctor.look_ups.sums import Sums
from labengine.record.table import Table
from labengine.record.wording import counted
from labengine.vllm.conformance.against import TrafficCost, cost_of
from labengine.vllm.conformance.traffic import Traffic


@dataclass(frozen=True, slots=True)
class PoolRun:
    """One run of the requests. name: of its column. sums: of all look-ups, including those after preemptions."""

    name: str
    num_blocks: int
    cost: TrafficCost
    sums: Sums

    @property
    def figures(self) -> dict[str, int]:
        """The run's costs by name."""
        lost = {"tokens evicted and missed": self.sums.missed.get("evicted", 0)}
        return {**{name.replace("_", " "): value for name, value in asdict(self.cost).items()}, **lost}

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        cost = asdict(self.cost)
        return {"name": self.name, "num_blocks": self.num_blocks, "cost": cost, "sums": self.sums.to_dict()}


@dataclass(frozen=True, repr=False)
class PoolComparison:
    """The same requests in pools of different sizes. runs: the recorded one, and one more for each size.

    If the edition differs from the recorded engine, its run with the recorded size is included.
    """

    title: str
    num_requests: int
    runs: tuple[PoolRun, ...]

    @property
    def table(self) -> Table:
        """The figures of the runs, side by side."""
        title = f"{self.title}: {counted(self.num_requests, 'request')}"
        return Table(title, {run.name: run.figures for run in self.runs})

    def __repr__(self) -> str:
        return repr(self.table)

    def _repr_html_(self) -> str:
        return self.table._repr_html_()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {"title": self.title, "num_requests": self.num_requests, "runs": [run.to_dict() for run in self.runs]}


def with_pools(recording: RecordedEngine, sizes: Iterable[int] | None) -> PoolComparison:
    """Run a recording's requests again with pools of these sizes, by default with one twice as large.

    Raises ConfigError if they cannot be repeated.
    """
    if recording.is_late:
        raise ConfigError(f"these requests cannot be repeated: {recording.why_late or 'the engine had run before'}")
    if recording.repeatable is None:
        raise ConfigError(f"these requests cannot be repeated: {recording.why_not_repeatable}")
    repeatable = recording.repeatable
    traffic = Traffic.of(recording.events, repeatable.salts, repeatable.places)
    if not traffic.requests:
        raise ConfigError("this recording has no requests yet")
    own = repeatable.config.num_blocks
    recorded = _run("recorded", own, recording, recording.events)
    runs = [recorded]
    if cost_of(again := _again(repeatable, traffic, own)) != recorded.cost:
        runs.append(_run(_name(repeatable, own), own, recording, again))
    for size in [2 * own] if sizes is None else sizes:
        runs.append(_run(_name(repeatable, size), size, recording, _again(repeatable, traffic, size)))
    return PoolComparison(recording.title, len(traffic.requests), tuple(runs))


def _again(repeatable: Repeatable, traffic: Traffic, num_blocks: int) -> list[ev.Event]:
    config = replace(repeatable.config, num_blocks=num_blocks, keep_finished=None)
    return traffic.run(config, repeatable.parts, repeatable.longest)


def _name(repeatable: Repeatable, num_blocks: int) -> str:
    return f"{repeatable.parts.name}, {counted(num_blocks, 'block')}"


def _run(name: str, num_blocks: int, recording: RecordedEngine, events: Sequence[ev.Event]) -> PoolRun:
    found = examine(replace(recording, events=events))
    return PoolRun(name, num_blocks, cost_of(events), Sums.of(found.look_ups))
