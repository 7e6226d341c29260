"""The figures of a run: cache hit rate, speed, time to first token, occupancy."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter

from labengine.events import EngineStarted, PrefixHit, RequestAdded, RequestFinished, TokenSampled
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
    """Per request, from add() to its first token, waiting included."""
    occupancy: float
    """Used blocks over all blocks, now."""
    peak_used_blocks: int
    """The most blocks in use at once, while a step was computed."""


@dataclass(slots=True)
class StatsListener:
    """Counts as events go by; the lab adds what events do not carry."""

    num_requests: int = 0
    num_finished: int = 0
    num_sampled_tokens: int = 0
    num_hit_tokens: int = 0
    num_looked_up_tokens: int = 0
    prompt_lengths: dict[int, int] = field(default_factory=dict)
    added_at: dict[int, float] = field(default_factory=dict)
    time_to_first_token: dict[int, float] = field(default_factory=dict)

    def subscribe(self, hooks: Hooks) -> None:
        """Listen for as long as the hooks live."""
        hooks.subscribe(self._started, EngineStarted)
        hooks.subscribe(self._added, RequestAdded)
        hooks.subscribe(self._looked_up, PrefixHit)
        hooks.subscribe(self._sampled, TokenSampled)
        hooks.subscribe(self._finished, RequestFinished)

    def _started(self, event: EngineStarted) -> None:
        self.num_requests = self.num_finished = self.num_sampled_tokens = 0
        self.num_hit_tokens = self.num_looked_up_tokens = 0
        self.prompt_lengths, self.added_at, self.time_to_first_token = {}, {}, {}

    def _added(self, event: RequestAdded) -> None:
        self.num_requests += 1
        self.prompt_lengths[event.request_id] = len(event.token_ids)
        self.added_at[event.request_id] = perf_counter()

    def _looked_up(self, event: PrefixHit) -> None:
        self.num_hit_tokens += event.num_tokens
        self.num_looked_up_tokens += self.prompt_lengths[event.request_id]

    def _sampled(self, event: TokenSampled) -> None:
        self.num_sampled_tokens += 1
        if event.request_id not in self.time_to_first_token:
            self.time_to_first_token[event.request_id] = perf_counter() - self.added_at[event.request_id]

    def _finished(self, event: RequestFinished) -> None:
        self.num_finished += 1
