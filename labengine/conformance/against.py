"""The recorded traffic on other parts: what would this patch have done with yesterday's requests?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from labengine import events as ev
from labengine.config import ConfigError, SamplingParams
from labengine.conformance.recorded import Recorded
from labengine.conformance.rerun import end_as_recorded, ends_of, salts_of
from labengine.conformance.settings import config_of, edition_for, longest_of
from labengine.core.editions import RECORDED_EDITIONS, edition
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.engine.engine import Engine
from labengine.engine.simulated import SimulatedRunner
from labengine.hooks import Hooks
from labengine.session.patch.override import parts_with
from labengine.wording import readable

MAX_TIMES_AS_LONG = 20
"""Steps per recorded step after which parts that do not get through are given up."""


@dataclass(frozen=True, slots=True)
class TrafficCost:
    """What one engine spent on the traffic. Each is counted from its events, the recorded engine's too."""

    forward_passes: int = 0
    computed_tokens: int = 0
    hit_tokens: int = 0
    """Tokens that admitted requests found in the cache, those admitted again after a preemption included."""
    preemptions: int = 0
    evicted_blocks: int = 0
    """Cached blocks whose content was given up for another request."""
    peak_blocks: int = 0
    """The most blocks in use at any one time."""


@dataclass(frozen=True, repr=False)
class Against:
    """The recorded traffic on the recorded engine and on other parts, side by side. names: of the two."""

    title: str
    names: tuple[str, str]
    num_requests: int
    recorded: TrafficCost
    other: TrafficCost
    why_incomplete: str = ""
    """Why the recording ends before the traffic does; empty if it does not."""

    def __repr__(self) -> str:
        rows = [
            (name.replace("_", " "), f"{value:,}", f"{getattr(self.other, name):,}")
            for name, value in _pairs(self.recorded)
        ]
        rows.insert(0, ("", *self.names))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
        cut = [f"The recording is cut: {self.why_incomplete}."] if self.why_incomplete else []
        return "\n".join([f"{self.title}: {self.num_requests:,} requests", *lines, *cut])

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        sides = {"recorded": asdict(self.recorded), "other": asdict(self.other)}
        counts = {"title": self.title, "names": list(self.names), "num_requests": self.num_requests}
        return {**counts, **sides, "why_incomplete": self.why_incomplete}


def _pairs(figures: TrafficCost) -> Iterable[tuple[str, int]]:
    return asdict(figures).items()


def against(recorded: Recorded, other: object) -> Against:
    """Run a recording's traffic on other parts. Raises ConfigError for what is no part, and if it does not get through.

    other: an edition's name, Parts, or a class that replaces one part of the edition that the stream is judged by.
    """
    parts = _parts(recorded, other)
    traffic = _Traffic.of(recorded)
    return Against(
        title=recorded.title,
        names=(recorded.name, parts.name),
        num_requests=len(traffic.requests),
        recorded=cost_of(recorded.piece.timeline.events()),
        other=_run(recorded, parts, traffic),
        why_incomplete=recorded.why_incomplete,
    )


def _parts(recorded: Recorded, other: object) -> Parts:
    if isinstance(other, str):
        return RECORDED_EDITIONS[other] if other in RECORDED_EDITIONS else edition(other)
    kinds = [group.kind for group in recorded.piece.fold.groups]
    return parts_with(other, edition_for(recorded.header), kinds)


def cost_of(events: Iterable[ev.Event]) -> TrafficCost:
    """Count what a run has spent."""
    counts = defaultdict[str, int](int)
    used = 0
    for event in events:
        match event:
            case ev.ForwardRan(_, num_tokens):
                counts["forward_passes"] += 1
                counts["computed_tokens"] += num_tokens
            case ev.PrefixHit(_, num_tokens):
                counts["hit_tokens"] += num_tokens
            case ev.RequestPreempted():
                counts["preemptions"] += 1
            case ev.BlockEvicted(_, "reused"):
                counts["evicted_blocks"] += 1
            case ev.BlockAllocated() | ev.BlockTouched(ref_count=1) | ev.BlockMerged(ref_count=1):
                used += 1
            case ev.BlockFreed(ref_count=0):
                used -= 1
        counts["peak_blocks"] = max(counts["peak_blocks"], used)
    return TrafficCost(**counts)


# -- the run -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Traffic:
    """When requests came and were aborted, and the cache was reset, in steps: those of n come before step n."""

    requests: dict[int, ev.RequestAdded] = field(default_factory=dict)
    arrivals: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    aborts: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    resets: set[int] = field(default_factory=set)
    num_steps: int = 0

    @classmethod
    def of(cls, recorded: Recorded) -> _Traffic:
        traffic, step = cls(), 1
        is_open = dict[int, None]()
        for event in recorded.piece.timeline.events():
            match event:
                case ev.StepStarted(number):
                    step = number + 1
                case ev.RequestAdded(request_id):
                    traffic.requests[request_id] = event
                    traffic.arrivals[step].append(request_id)
                    is_open[request_id] = None
                case ev.PrefixCacheReset():
                    traffic.resets.add(step)
                case ev.RequestFinished(request_id, reason):
                    del is_open[request_id]
                    if reason == "abort":
                        traffic.aborts[step].append(request_id)
        traffic.num_steps = step
        traffic.aborts[step] += is_open  # the recording ends while they run
        return traffic


def _run(recorded: Recorded, parts: Parts, traffic: _Traffic) -> TrafficCost:
    tokens = {i: request.token_ids for i, request in recorded.piece.fold.requests.items()}
    events: list[ev.Event] = []
    hooks = Hooks()
    hooks.subscribe(events.append)
    config, longest = config_of(recorded.header, recorded.piece), longest_of(recorded.header)
    engine = Engine(config, SimulatedRunner(lambda i, position: _token(tokens[i], position)), parts, hooks)
    end_as_recorded(engine.scheduler, ends_of(recorded.piece))
    salts, last, step = salts_of(recorded.piece), max((*traffic.arrivals, *traffic.aborts)), 1
    while step <= last or not engine.scheduler.is_idle:
        if step in traffic.resets:
            engine.reset_prefix_cache()  # refused, as in vLLM, while a request holds blocks
        for request_id in traffic.arrivals.get(step, ()):
            added = traffic.requests[request_id]
            sampling = SamplingParams(max_tokens=max(1, min(added.max_tokens, longest - len(added.token_ids))))
            salt = salts.get(request_id, ())
            engine.queue(Request(request_id, list(added.token_ids), sampling, 0, len(config.groups), salt))
        for request_id in traffic.aborts.get(step, ()):
            engine.abort(request_id)
        _step(engine, parts)
        step += 1
        if step > MAX_TIMES_AS_LONG * (traffic.num_steps + 100):
            raise ConfigError(
                f"{parts.name} does not get through the traffic: after {step:,} steps requests still wait"
            )
    return cost_of(events)


def _step(engine: Engine, parts: Parts) -> None:
    try:
        engine.step()
    except Exception as error:
        what = readable(f"{type(error).__name__}: {error}", 300)
        raise ConfigError(f"{parts.name} raises in step {engine.step_number + 1} of the traffic: {what}") from error


def _token(tokens: Sequence[int], position: int) -> int:
    """Return the recorded token; after the last one any: the recorded engine ended the request before."""
    return tokens[position] if position < len(tokens) else 0
