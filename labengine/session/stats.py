"""The figures of a run: cache hit rate, speed, time to first token, occupancy."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from time import perf_counter

from labengine.events import (
    EngineStarted,
    PrefixHit,
    RequestAdded,
    RequestFinished,
    RequestForgotten,
    StepEnded,
    StepRolledBack,
    StepStarted,
)
from labengine.hooks import Hooks
from labengine.session.stepper import Stepper


@dataclass(frozen=True, slots=True)
class LabStats:
    """Figures since the lab was made or reset. Times in seconds."""

    num_requests: int
    num_finished: int
    num_steps: int
    num_sampled_tokens: int
    hit_rate: float
    """Prompt tokens found in the prefix cache over prompt tokens looked up; 0.0 before any look-up."""
    tokens_per_second: float
    """Sampled tokens over the time spent inside steps."""
    seconds_stepping: float
    time_to_first_token: dict[int, float]
    """Per request that is kept, from add() to its first token, waiting included."""
    mean_time_to_first_token: float
    """Over all requests that have one, those forgotten since included; 0.0 before any."""
    occupancy: float
    """Used blocks over all blocks, now."""
    peak_used_blocks: int
    """The most blocks in use at once, while a step was computed."""


@dataclass(slots=True)
class Counts:
    """Sums over events."""

    num_requests: int = 0
    num_finished: int = 0
    num_sampled_tokens: int = 0
    num_hit_tokens: int = 0
    num_looked_up_tokens: int = 0
    num_forgotten_firsts: int = 0
    """Forgotten requests that had a first token."""
    seconds_to_forgotten_firsts: float = 0.0


@dataclass(slots=True)
class Times:
    """A request's prompt length, and when it was added and had its first token, by perf_counter in seconds."""

    prompt_length: int
    added_at: float
    first_token_at: float | None = None


@dataclass(slots=True)
class RunFigures:
    """Counts and times since the engine began."""

    counts: Counts = field(default_factory=Counts)
    before_step: Counts = field(default_factory=Counts)
    requests: dict[int, Times] = field(default_factory=dict)
    first_in_step: list[Times] = field(default_factory=list)


class StatsListener:
    """Counts events; a step that was rolled back does not count.

    A wrong part may name a request that does not exist: a listener that raised would be dropped, and count no more.
    """

    def __init__(self, sampled: Callable[[], Collection[int]]) -> None:
        """sampled: the ids of the requests that got a token in the newest step."""
        self._sampled = sampled
        self._run = RunFigures()

    def subscribe(self, hooks: Hooks) -> None:
        """Listen for as long as the hooks live.

        Not to TokenSampled: building that event for every token takes longer than the engine's own work on it.
        """
        hooks.subscribe(self._started, EngineStarted)
        hooks.subscribe(self._step_started, StepStarted)
        hooks.subscribe(self._rolled_back, StepRolledBack)
        hooks.subscribe(self._added, RequestAdded)
        hooks.subscribe(self._looked_up, PrefixHit)
        hooks.subscribe(self._step_ended, StepEnded)
        hooks.subscribe(self._finished, RequestFinished)
        hooks.subscribe(self._forgotten, RequestForgotten)

    def figures(self, stepper: Stepper) -> LabStats:
        """Return all figures; from any thread, while another one steps or resets."""
        run, engine, seconds = self._run, stepper.engine, stepper.seconds_stepping
        counts, looked_up = run.counts, run.counts.num_looked_up_tokens
        waited = {
            request_id: times.first_token_at - times.added_at
            for request_id, times in list(run.requests.items())
            if times.first_token_at is not None
        }
        num_firsts = len(waited) + counts.num_forgotten_firsts
        return LabStats(
            num_requests=counts.num_requests,
            num_finished=counts.num_finished,
            num_steps=engine.step_number,
            num_sampled_tokens=counts.num_sampled_tokens,
            hit_rate=counts.num_hit_tokens / looked_up if looked_up else 0.0,
            tokens_per_second=counts.num_sampled_tokens / seconds if seconds else 0.0,
            seconds_stepping=seconds,
            time_to_first_token=waited,
            mean_time_to_first_token=(sum(waited.values()) + counts.seconds_to_forgotten_firsts) / (num_firsts or 1),
            occupancy=engine.num_used_blocks / engine.config.num_blocks,
            peak_used_blocks=stepper.peak_used_blocks,
        )

    def _started(self, event: EngineStarted) -> None:
        self._run = RunFigures()

    def _step_started(self, event: StepStarted) -> None:
        self._run.before_step = replace(self._run.counts)
        self._run.first_in_step.clear()

    def _rolled_back(self, event: StepRolledBack) -> None:
        self._run.counts = self._run.before_step
        for times in self._run.first_in_step:
            times.first_token_at = None

    def _added(self, event: RequestAdded) -> None:
        self._run.counts.num_requests += 1
        self._run.requests[event.request_id] = Times(len(event.token_ids), perf_counter())

    def _looked_up(self, event: PrefixHit) -> None:
        if (times := self._run.requests.get(event.request_id)) is not None:
            self._run.counts.num_hit_tokens += min(event.num_tokens, times.prompt_length)  # more after a preemption
            self._run.counts.num_looked_up_tokens += times.prompt_length

    def _step_ended(self, event: StepEnded) -> None:
        sampled, requests = self._sampled(), self._run.requests
        self._run.counts.num_sampled_tokens += len(sampled)
        for request_id in sampled:
            times = requests.get(request_id)
            if times is not None and times.first_token_at is None:
                times.first_token_at = perf_counter()
                self._run.first_in_step.append(times)

    def _finished(self, event: RequestFinished) -> None:
        self._run.counts.num_finished += 1

    def _forgotten(self, event: RequestForgotten) -> None:
        """Drop a forgotten request's own figures; the sums keep them."""
        times = self._run.requests.pop(event.request_id, None)
        if times is not None and times.first_token_at is not None:
            self._run.counts.num_forgotten_firsts += 1
            self._run.counts.seconds_to_forgotten_firsts += times.first_token_at - times.added_at
