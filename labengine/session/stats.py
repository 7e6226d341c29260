"""The figures of a run: cache hit rate, speed, time to first token, occupancy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

from labengine.engine.step_report import StepReport
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
from labengine.record.figures import Counter
from labengine.record.hooks import Hooks
from labengine.session.stepper import Stepper
from labengine.system.code_roles import Role, plays

plays(__name__, Role.FOLLOWS_EVENTS)


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
    """Sampled tokens per second spent inside steps."""
    seconds_stepping: float
    time_to_first_token: dict[int, float]
    """Per kept request, the time from add() to its first token, waiting included."""
    mean_time_to_first_token: float
    """Mean over all requests with a first token, including forgotten ones; 0.0 before any."""
    occupancy: float
    """Used blocks over all blocks at present."""
    peak_used_blocks: int
    """The most blocks in use at once during a step."""
    acceptance: dict[int, float]
    """Per kept request with drafts: accepted drafts over judged ones."""
    mean_acceptance: float
    """Rate over all requests, including forgotten ones; 0.0 before any draft was judged."""
    tokens_per_step: float
    """Mean tokens per request and step, over steps that give it any: 1.0 without speculation; 0.0 before any."""


@dataclass(slots=True)
class Times:
    """The times at which a request was added and had its first token, by perf_counter in seconds."""

    added_at: float
    first_token_at: float | None = None


@dataclass(slots=True)
class Drafts:
    """Counts of tokens and of judged drafts per request, since the engine began."""

    num_turns: int = 0
    """Number of pairs of a step and a request that it gave tokens."""
    num_judged: int = 0
    num_accepted: int = 0
    of_request: dict[int, tuple[int, int]] = field(default_factory=dict)
    """(judged, accepted) per request."""

    def after(self, report: StepReport) -> Drafts:
        """Return new counts after one more step; the present ones stay for a step that is rolled back."""
        of_request = dict(self.of_request) if report.drafted else self.of_request
        for request_id, num_judged in report.drafted.items():
            judged, accepted = of_request.get(request_id, (0, 0))
            of_request[request_id] = judged + num_judged, accepted + report.accepted[request_id]
        num_judged, num_accepted = sum(report.drafted.values()), sum(report.accepted.values())
        counts = self.num_turns + len(report.sampled), self.num_judged + num_judged, self.num_accepted + num_accepted
        return Drafts(*counts, of_request)


@dataclass(slots=True)
class Waits:
    """The waiting times of requests for their first tokens, since the engine began."""

    requests: dict[int, Times] = field(default_factory=dict)
    first_in_step: list[Times] = field(default_factory=list)
    num_sampled: int = 0
    num_sampled_before_step: int = 0
    num_forgotten_firsts: int = 0
    """Number of forgotten requests that had a first token."""
    seconds_to_forgotten_firsts: float = 0.0


class StatsListener:
    """Keeps counts and times; a step that was rolled back does not count.

    A wrong part may name an unknown request. The listener must not raise then, because it would be dropped.
    """

    def __init__(self, report: Callable[[], StepReport]) -> None:
        """report: returns the newest step's report."""
        self._report = report
        self._counter, self._waits = Counter(), Waits()
        self._drafts = self._drafts_before_step = Drafts()

    def subscribe(self, hooks: Hooks) -> None:
        """Listen for as long as the hooks live.

        TokenSampled is left out: to build that event for every token takes longer than the engine's work on it.
        """
        self._counter.subscribe(hooks, PrefixHit, RequestFinished)
        hooks.subscribe(self._started, EngineStarted)
        hooks.subscribe(self._step_started, StepStarted)
        hooks.subscribe(self._rolled_back, StepRolledBack)
        hooks.subscribe(self._added, RequestAdded)
        hooks.subscribe(self._step_ended, StepEnded)
        hooks.subscribe(self._forgotten, RequestForgotten)

    def figures(self, stepper: Stepper) -> LabStats:
        """Return all figures. May be called on any thread, while another one steps or resets."""
        drafts = self._drafts
        run, waits, engine, seconds = self._counter.figures, self._waits, stepper.engine, stepper.seconds_stepping
        waited = {
            request_id: times.first_token_at - times.added_at
            for request_id, times in list(waits.requests.items())
            if times.first_token_at is not None
        }
        num_firsts = len(waited) + waits.num_forgotten_firsts
        return LabStats(
            num_requests=run.num_requests,
            num_finished=run.num_finished,
            num_steps=engine.step_number,
            num_sampled_tokens=waits.num_sampled,
            hit_rate=run.hit_rate,
            tokens_per_second=waits.num_sampled / seconds if seconds else 0.0,
            seconds_stepping=seconds,
            time_to_first_token=waited,
            mean_time_to_first_token=(sum(waited.values()) + waits.seconds_to_forgotten_firsts) / (num_firsts or 1),
            occupancy=engine.num_used_blocks / engine.config.num_blocks,
            peak_used_blocks=stepper.peak_used_blocks,
            acceptance={i: accepted / judged for i, (judged, accepted) in list(drafts.of_request.items())},
            mean_acceptance=drafts.num_accepted / (drafts.num_judged or 1),
            tokens_per_step=waits.num_sampled / (drafts.num_turns or 1),
        )

    def _started(self, event: EngineStarted) -> None:
        self._waits = Waits()
        self._drafts = self._drafts_before_step = Drafts()

    def _step_started(self, event: StepStarted) -> None:
        self._waits.num_sampled_before_step = self._waits.num_sampled
        self._waits.first_in_step.clear()
        self._drafts_before_step = self._drafts

    def _rolled_back(self, event: StepRolledBack) -> None:
        self._waits.num_sampled = self._waits.num_sampled_before_step
        self._drafts = self._drafts_before_step
        for times in self._waits.first_in_step:
            times.first_token_at = None

    def _added(self, event: RequestAdded) -> None:
        self._waits.requests[event.request_id] = Times(perf_counter())

    def _step_ended(self, event: StepEnded) -> None:
        report, waits = self._report(), self._waits
        waits.num_sampled += sum(map(len, report.sampled.values()))
        self._drafts = self._drafts.after(report)
        for request_id in report.sampled:
            times = waits.requests.get(request_id)
            if times is not None and times.first_token_at is None:
                times.first_token_at = perf_counter()
                waits.first_in_step.append(times)

    def _forgotten(self, event: RequestForgotten) -> None:
        """Drop a forgotten request's figures, which stay in the sums."""
        self._drafts.of_request.pop(event.request_id, None)
        times = self._waits.requests.pop(event.request_id, None)
        if times is not None and times.first_token_at is not None:
            self._waits.num_forgotten_firsts += 1
            self._waits.seconds_to_forgotten_firsts += times.first_token_at - times.added_at
