"""The figures of a run, summed over its events, for scenarios, comparisons, searches and `lab.stats()`.

Blocks in use are not such a sum, but the blocks outside the fold's free queue (`Fold.num_used_blocks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from labengine import events as ev
from labengine.record.hooks import Hooks, Subscription
from labengine.system.code_roles import Role, plays

plays(__name__, Role.FOLLOWS_EVENTS)


@dataclass(slots=True)
class RunFigures:
    """Sums over a run's events since the engine started, in tokens unless the name says otherwise."""

    num_requests: int = 0
    num_finished: int = 0
    """Requests that ended, aborted ones included."""
    num_preemptions: int = 0
    num_forward_passes: int = 0
    num_computed: int = 0
    """Over all forward passes, recomputed tokens included."""
    num_prefill: int = 0
    num_decode: int = 0
    num_sampled: int = 0
    num_hit: int = 0
    """Found in the cache at admission; after a preemption, the request's sampled tokens included."""
    num_hit_of_prompts: int = 0
    num_looked_up: int = 0
    """Tokens of the prompts that were looked up."""
    num_evicted_blocks: int = 0
    """Cached blocks whose content was dropped for another request."""

    @property
    def hit_rate(self) -> float:
        """Prompt tokens found in the cache over prompt tokens looked up; 0.0 before any look-up."""
        return self.num_hit_of_prompts / self.num_looked_up if self.num_looked_up else 0.0


@dataclass(slots=True)
class Counter:
    """Counts events as they come; a rolled-back step does not count.

    A faulty part may name a request that does not exist; its prompt counts as empty.
    """

    figures: RunFigures = field(default_factory=RunFigures)
    prompt_lengths: dict[int, int] = field(default_factory=dict)
    """Tokens of each request's prompt. To be filled in for a counter that begins late."""
    _before_step: tuple[int, RunFigures] | None = None

    def note(self, event: ev.Event) -> None:
        """Count one event."""
        note = self._NOTES.get(type(event))
        if note is not None:
            note(self, event)

    def subscribe(self, hooks: Hooks, *kinds: type[ev.Event]) -> Subscription:
        """Count events of these kinds, and undo rolled-back steps. Other kinds are not built for this counter."""
        return hooks.subscribe(self.note, *_FRAMES, *kinds)

    def _note_engine(self, event: ev.EngineStarted) -> None:
        self.figures, self.prompt_lengths, self._before_step = RunFigures(), {}, None

    def _note_step(self, event: ev.StepStarted) -> None:
        self._before_step = event.step, replace(self.figures)

    def _note_rollback(self, event: ev.StepRolledBack) -> None:
        if self._before_step is not None and self._before_step[0] == event.step:
            self.figures = self._before_step[1]
        self._before_step = None

    def _note_added(self, event: ev.RequestAdded) -> None:
        self.figures.num_requests += 1
        self.prompt_lengths[event.request_id] = len(event.token_ids) - event.num_generated

    def _note_finished(self, event: ev.RequestFinished) -> None:
        self.figures.num_finished += 1

    def _note_forgotten(self, event: ev.RequestForgotten) -> None:
        self.prompt_lengths.pop(event.request_id, None)

    def _note_preempted(self, event: ev.RequestPreempted) -> None:
        self.figures.num_preemptions += 1

    def _note_hit(self, event: ev.PrefixHit) -> None:
        length = self.prompt_lengths.get(event.request_id, 0)
        self.figures.num_hit += event.num_tokens
        self.figures.num_hit_of_prompts += min(event.num_tokens, length)
        if not event.is_skipped:
            self.figures.num_looked_up += length

    def _note_scheduled(self, event: ev.RequestScheduled) -> None:
        if event.is_prefill:
            self.figures.num_prefill += event.num_tokens
        else:
            self.figures.num_decode += event.num_tokens

    def _note_forward(self, event: ev.ForwardRan) -> None:
        self.figures.num_forward_passes += 1
        self.figures.num_computed += event.num_tokens

    def _note_sampled(self, event: ev.TokenSampled) -> None:
        self.figures.num_sampled += 1

    def _note_evicted(self, event: ev.BlockEvicted) -> None:
        self.figures.num_evicted_blocks += event.reason == "reused"

    _NOTES: ClassVar[dict[type[ev.Event], Callable[[Any, Any], None]]] = {
        ev.EngineStarted: _note_engine,
        ev.StepStarted: _note_step,
        ev.StepRolledBack: _note_rollback,
        ev.RequestAdded: _note_added,
        ev.RequestFinished: _note_finished,
        ev.RequestForgotten: _note_forgotten,
        ev.RequestPreempted: _note_preempted,
        ev.PrefixHit: _note_hit,
        ev.RequestScheduled: _note_scheduled,
        ev.ForwardRan: _note_forward,
        ev.TokenSampled: _note_sampled,
        ev.BlockEvicted: _note_evicted,
    }


_FRAMES = (ev.EngineStarted, ev.StepStarted, ev.StepRolledBack, ev.RequestAdded, ev.RequestForgotten)


def counted(events: Iterable[ev.Event]) -> RunFigures:
    """Return the figures of a run's events."""
    counter = Counter()
    for event in events:
        counter.note(event)
    return counter.figures
