"""RunFigures per finished step, computed from events as a recording grows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from labengine import events as ev
from labengine.record.figures import Counter, RunFigures
from labengine.record.fold import Fold
from labengine.record.timeline import Timeline


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
    _state: Fold = field(default_factory=Fold)
    _counter: Counter = field(default_factory=Counter)
    _before: RunFigures = field(default_factory=RunFigures)
    _peak: int = 0

    def update(self) -> bool:
        """Read the recording's new events; return True if there were any."""
        timeline = self.timeline
        if timeline.generation != self._generation or not timeline.num_dropped <= self._end <= timeline.end:
            self._begin()
        before = self._end
        for event in timeline.events(self._end, timeline.end):
            self._end += 1
            self._note(event)
        return self._end != before

    def _begin(self) -> None:
        timeline = self.timeline
        self._generation, self._end, self.steps = timeline.generation, timeline.num_dropped, []
        self._state = timeline.state(timeline.num_dropped)
        self.num_blocks = len(self._state.ref_counts)
        lengths = {i: request.num_prompt_tokens for i, request in self._state.requests.items()}
        self._counter, self._before = Counter(prompt_lengths=lengths), RunFigures()

    def _note(self, event: ev.Event) -> None:
        self._counter.note(event)
        self._state.apply(event)
        match event:
            case ev.EngineStarted():
                self.num_blocks, self.steps, self._before = event.num_blocks, [], RunFigures()
            case ev.StepStarted():
                self._before, self._peak = replace(self._counter.figures), 0
            case ev.StepRolledBack():
                self._state = self.timeline.state(self._end)
            case ev.StepEnded():
                self._note_end(event)
        self._peak = max(self._peak, self._state.num_used_blocks)

    def _note_end(self, event: ev.StepEnded) -> None:
        now, before, used = self._counter.figures, self._before, self._state.num_used_blocks
        self.steps.append(
            StepFigures(
                event.step,
                used,
                self._peak,
                now.hit_rate,
                now.num_prefill - before.num_prefill,
                now.num_decode - before.num_decode,
                now.num_sampled - before.num_sampled,
                self.timeline.step_seconds.get(event.step),
            )
        )
