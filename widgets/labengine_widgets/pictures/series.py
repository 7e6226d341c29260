"""Figures per finished step, computed from events as a recording grows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from labengine import events as ev
from labengine.timeline import Timeline


@dataclass(slots=True)
class Totals:
    """Sums over the events so far; hit and looked_up count prompt tokens since the recording's start."""

    used: int = 0
    peak: int = 0
    hit: int = 0
    looked_up: int = 0
    prefill: int = 0
    decode: int = 0
    sampled: int = 0


@dataclass(frozen=True, slots=True)
class StepFigures:
    """One step's figures: blocks used after it and at its peak; tokens looked up and found so far; tokens computed.

    seconds is None where it is not known.
    """

    step: int
    used: int
    peak: int
    hit_rate: float
    prefill: int
    decode: int
    sampled: int
    seconds: float | None


@dataclass(slots=True)
class StepSeries:
    """The figures of all steps that a recording keeps, oldest first; a rolled-back step has none."""

    timeline: Timeline
    steps: list[StepFigures] = field(default_factory=list)
    num_blocks: int = 0
    _end: int = -1
    _generation: int = -1
    _now: Totals = field(default_factory=Totals)
    _before: Totals = field(default_factory=Totals)
    _prompt_lengths: dict[int, int] = field(default_factory=dict)

    def update(self) -> bool:
        """Read the recording's new events; return True if there were any."""
        timeline = self.timeline
        if timeline.generation != self._generation or not timeline.num_dropped <= self._end <= timeline.end:
            self._begin()
        before, events = self._end, timeline.events(self._end, timeline.end)
        for event in events:
            note = self._NOTES.get(type(event))
            if note is not None:
                note(self, event)
        self._end += len(events)
        return self._end != before

    def _begin(self) -> None:
        timeline = self.timeline
        state = timeline.state(timeline.num_dropped)
        self._generation, self._end, self.steps = timeline.generation, timeline.num_dropped, []
        self.num_blocks = len(state.ref_counts)
        self._now = Totals(used=state.num_used_blocks if self.num_blocks else 0)
        self._prompt_lengths = {i: request.num_prompt_tokens for i, request in state.requests.items()}

    def _note_engine(self, event: ev.EngineStarted) -> None:
        self.num_blocks, self.steps, self._now, self._prompt_lengths = event.num_blocks, [], Totals(), {}

    def _note_step(self, event: ev.StepStarted) -> None:
        self._before = replace(self._now)
        self._now = replace(self._now, peak=self._now.used, prefill=0, decode=0, sampled=0)

    def _note_end(self, event: ev.StepEnded) -> None:
        now = self._now
        hit_rate = now.hit / now.looked_up if now.looked_up else 0.0
        seconds = self.timeline.step_seconds.get(event.step)
        self.steps.append(
            StepFigures(event.step, now.used, now.peak, hit_rate, now.prefill, now.decode, now.sampled, seconds)
        )

    def _note_rollback(self, event: ev.StepRolledBack) -> None:
        self._now = replace(self._before)

    def _note_added(self, event: ev.RequestAdded) -> None:
        self._prompt_lengths[event.request_id] = len(event.token_ids)

    def _note_forgotten(self, event: ev.RequestForgotten) -> None:
        self._prompt_lengths.pop(event.request_id, None)

    def _note_hit(self, event: ev.PrefixHit) -> None:
        length = self._prompt_lengths.get(event.request_id, 0)
        self._now.hit += min(event.num_tokens, length)  # more after a preemption
        self._now.looked_up += length

    def _note_scheduled(self, event: ev.RequestScheduled) -> None:
        if event.is_prefill:
            self._now.prefill += event.num_tokens
        else:
            self._now.decode += event.num_tokens

    def _note_sampled(self, event: ev.TokenSampled) -> None:
        self._now.sampled += 1

    def _note_allocated(self, event: ev.BlockAllocated) -> None:
        self._use(1)

    def _note_touched(self, event: ev.BlockTouched) -> None:
        self._use(event.ref_count == 1)

    def _note_freed(self, event: ev.BlockFreed) -> None:
        self._use(-(event.ref_count == 0))

    def _use(self, number: int) -> None:
        self._now.used += number
        self._now.peak = max(self._now.peak, self._now.used)

    _NOTES: ClassVar[dict[type[ev.Event], Callable[[Any, Any], None]]] = {
        ev.EngineStarted: _note_engine,
        ev.StepStarted: _note_step,
        ev.StepEnded: _note_end,
        ev.StepRolledBack: _note_rollback,
        ev.RequestAdded: _note_added,
        ev.RequestForgotten: _note_forgotten,
        ev.PrefixHit: _note_hit,
        ev.RequestScheduled: _note_scheduled,
        ev.TokenSampled: _note_sampled,
        ev.BlockAllocated: _note_allocated,
        ev.BlockTouched: _note_touched,
        ev.BlockFreed: _note_freed,
    }
