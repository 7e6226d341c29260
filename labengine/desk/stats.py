"""The figures of a run: cache hit rate, speed, time to first token, occupancy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter

from labengine.desk.stepper import Stepper
from labengine.events import (
    EngineStarted,
    PrefixHit,
    RequestAdded,
    RequestFinished,
    RequestForgotten,
    StepRolledBack,
    StepStarted,
    TokenSampled,
)
from labengine.hooks import Hooks


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
    """What the events have added up to."""

    num_requests: int = 0
    num_finished: int = 0
    num_sampled_tokens: int = 0
    num_hit_tokens: int = 0
    num_looked_up_tokens: int = 0
    num_forgotten_firsts: int = 0
    """Forgotten requests that had a first token."""
    seconds_to_forgotten_firsts: float = 0.0


class StatsListener:
    """Counts as events go by; a step that was rolled back does not count."""

    def __init__(self) -> None:
        self._restart()

    def _restart(self) -> None:
        self._counts = Counts()
        self._before_step = Counts()
        self._prompt_lengths: dict[int, int] = {}
        self._added_at: dict[int, float] = {}
        self._first_token_at: dict[int, float] = {}
        self._first_in_step: list[int] = []

    def subscribe(self, hooks: Hooks) -> None:
        """Listen for as long as the hooks live."""
        hooks.subscribe(lambda event: self._restart(), EngineStarted)
        hooks.subscribe(self._step_started, StepStarted)
        hooks.subscribe(self._rolled_back, StepRolledBack)
        hooks.subscribe(self._added, RequestAdded)
        hooks.subscribe(self._looked_up, PrefixHit)
        hooks.subscribe(self._sampled, TokenSampled)
        hooks.subscribe(self._finished, RequestFinished)
        hooks.subscribe(self._forgotten, RequestForgotten)

    def figures(self, stepper: Stepper) -> LabStats:
        """All figures now."""
        counts, engine, seconds = self._counts, stepper.engine, stepper.seconds_stepping
        looked_up = counts.num_looked_up_tokens
        waited = {i: at - self._added_at[i] for i, at in list(self._first_token_at.items())}
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

    def _step_started(self, event: StepStarted) -> None:
        self._before_step = replace(self._counts)
        self._first_in_step.clear()

    def _rolled_back(self, event: StepRolledBack) -> None:
        self._counts = self._before_step
        for request_id in self._first_in_step:
            self._first_token_at.pop(request_id, None)

    def _added(self, event: RequestAdded) -> None:
        self._counts.num_requests += 1
        self._prompt_lengths[event.request_id] = len(event.token_ids)
        self._added_at[event.request_id] = perf_counter()

    def _looked_up(self, event: PrefixHit) -> None:
        num_prompt_tokens = self._prompt_lengths[event.request_id]
        self._counts.num_hit_tokens += min(event.num_tokens, num_prompt_tokens)  # more after a preemption
        self._counts.num_looked_up_tokens += num_prompt_tokens

    def _sampled(self, event: TokenSampled) -> None:
        self._counts.num_sampled_tokens += 1
        if event.request_id not in self._first_token_at:
            self._first_token_at[event.request_id] = perf_counter()
            self._first_in_step.append(event.request_id)

    def _finished(self, event: RequestFinished) -> None:
        self._counts.num_finished += 1

    def _forgotten(self, event: RequestForgotten) -> None:
        """Between steps: the request's own figures go, and stay in the sums."""
        added_at = self._added_at.pop(event.request_id)
        self._prompt_lengths.pop(event.request_id, None)
        first = self._first_token_at.pop(event.request_id, None)
        if first is not None:
            self._counts.num_forgotten_firsts += 1
            self._counts.seconds_to_forgotten_firsts += first - added_at
