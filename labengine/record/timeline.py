"""The timeline: a bounded recording of events, and the state at any moment in it."""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock
from time import perf_counter
from typing import TypeVar, cast

from labengine import events as ev
from labengine.record.fold import Fold, surviving
from labengine.record.gap import Gap
from labengine.system.code_roles import Role, plays

plays(__name__, Role.FOLLOWS_EVENTS)

E = TypeVar("E", bound=ev.Event)


class Timeline:
    """A bounded recording: the newest `max_events` events, and the state at any moment among them.

    A moment is a number of events: moment n is the state after the first n. Recording costs one list append; states are
    folded on demand, from the nearest keyframe. `num_dropped` counts the dropped events. Any thread may read while the
    engine's thread records.
    """

    _KEYFRAME_EVERY = 2000
    """Fewest events between keyframes. A keyframe is taken at the start of a step, which may still roll back."""

    def __init__(self, max_events: int = 100_000) -> None:
        self.max_events = max_events
        self.generation = 0
        """Number of times that the recording has started over. Events of two generations are unrelated."""
        self._guard = RLock()
        self._begin(Fold())

    @classmethod
    def starting_at(cls, state: Fold, max_events: int = 100_000) -> Timeline:
        """Return a recording that begins at a given state, for a listener that subscribes late.

        Moment 0 is that state.
        """
        timeline = cls(max_events)
        timeline._begin(state.copy())
        return timeline

    def begin_at(self, state: Fold, gap: Gap | None = None) -> None:
        """Start the recording over at a given state, moment 0 of the next generation. gap: the gap before it."""
        with self._guard:
            self.generation += 1
            self._begin(state.copy(), gap)

    def _begin(self, state: Fold, gap: Gap | None = None) -> None:
        self.num_dropped = 0
        self.gap_before = gap
        """The gap before the recording; None if none is known."""
        self.gap_after: Gap | None = None
        """The gap after the recording; None if none is known."""
        self._corrections: dict[int, Fold] = {}
        """The states that the recording went on from although its events do not lead to them, by their moments."""
        self.step_seconds: dict[int, float] = {}
        """Seconds from start to end of each recorded step that has ended, waits between its phases included."""
        self._step_started_at = perf_counter()
        self._events: list[ev.Event] = []
        self._keyframes: dict[int, Fold] = {0: state}

    def correct(self, state: Fold) -> None:
        """Go on from this state, which the events do not lead to; the moments before keep theirs. Between two steps."""
        with self._guard:
            self._corrections[self.end] = self._keyframes[self.end] = state.copy()

    @property
    def corrected_at(self) -> int:
        """The newest moment at which the recording went on from a state that its events do not lead to; 0 for none."""
        return next(reversed(self._corrections), 0)

    def corrections(self, start: int, stop: int) -> list[tuple[int, Fold]]:
        """Return (moment, state) of the corrections from a moment to another one, both included, oldest first."""
        with self._guard:
            return [(moment, state) for moment, state in self._corrections.items() if start <= moment <= stop]

    def record(self, event: ev.Event) -> None:
        """Record one event; to be subscribed to the hooks. A restarted engine starts the recording over."""
        kind = type(event)
        if kind is ev.StepStarted:
            self._open_step()
        elif kind is ev.StepEnded:
            self.step_seconds[cast(ev.StepEnded, event).step] = perf_counter() - self._step_started_at
        elif kind is ev.EngineStarted:
            self._restart()
        self._events.append(event)

    def _open_step(self) -> None:
        if len(self._events) > self.max_events:
            with self._guard:
                self._drop_oldest()
        self._step_started_at = perf_counter()

    def _restart(self) -> None:
        with self._guard:
            self.generation += 1
            self._begin(Fold())

    @property
    def end(self) -> int:
        """The newest moment."""
        return self.num_dropped + len(self._events)

    def events(self, start: int | None = None, stop: int | None = None) -> Sequence[ev.Event]:
        """Return the recorded events between two moments; by default all that are kept."""
        with self._guard:
            low = 0 if start is None else max(0, start - self.num_dropped)
            return self._events[low : None if stop is None else max(0, stop - self.num_dropped)]

    def kept(self) -> tuple[int, Fold, Sequence[ev.Event]]:
        """Return, as of one instant, the oldest moment kept, the state there, and the events since."""
        with self._guard:
            return self.num_dropped, self._state(self.num_dropped), self.events()

    def until(self, moment: int) -> Timeline:
        """Return a copy of the recording up to a moment. Raises IndexError as `state` does."""
        first, state, events = self.kept()
        if not first <= moment <= first + len(events):
            raise IndexError(f"no moment {moment}: the recording spans {first} to {first + len(events)}")
        part = Timeline.starting_at(state, self.max_events)
        part.num_dropped = first
        part._keyframes = {m: f for m, f in self._keyframes.items() if m <= moment} | {first: state}
        part._corrections = dict(self.corrections(first, moment))
        part._keyframes |= part._corrections
        part.gap_before, part.gap_after = self.gap_before, self.gap_after
        part.step_seconds = dict(self.step_seconds)
        part._events = list(events[: moment - first])
        return part

    def of_kind(
        self, kind: type[E] | tuple[type[E], ...], start: int | None = None, stop: int | None = None
    ) -> list[E]:
        """Return the recorded events of one or several kinds between two moments (by default all that are kept)."""
        return [event for event in self.events(start, stop) if isinstance(event, kind)]

    def step_moments(self, step: int) -> tuple[int, int]:
        """Return the moments before and after the last run of `step`. Raises KeyError if it is not recorded."""
        with self._guard:
            for i in range(len(self._events) - 1, -1, -1):
                event = self._events[i]
                if isinstance(event, ev.StepStarted) and event.step == step:
                    return self.num_dropped + i, self._end_of_step(i)
        raise KeyError(f"step {step} is not in the recording (events {self.num_dropped} to {self.end})")

    def state(self, moment: int | None = None) -> Fold:
        """Return a copy of the state at a moment (the newest by default). Raises IndexError for a dropped moment."""
        with self._guard:
            return self._state(self.end if moment is None else moment)

    def _state(self, moment: int) -> Fold:
        if not self.num_dropped <= moment <= self.end:
            raise IndexError(f"no moment {moment}: the recording spans {self.num_dropped} to {self.end}")
        start = max(m for m in self._keyframes if m <= moment)
        state = self._keyframes[start].copy()
        events = self.events(start, moment)
        last_keyframe = 0
        for i in surviving(events):
            if type(events[i]) is ev.StepStarted and i - last_keyframe >= self._KEYFRAME_EVERY:
                self._keyframes[start + i] = state.copy()
                last_keyframe = i
            state.apply(events[i])
        state.take_changes()
        return state

    def _end_of_step(self, i: int) -> int:
        for j in range(i, len(self._events)):
            if isinstance(self._events[j], (ev.StepEnded, ev.StepRolledBack)):
                return self.num_dropped + j + 1
        return self.end

    def _drop_oldest(self) -> None:
        """Fold the oldest events into the first keyframe, up to the start of a step: kept steps are complete."""
        i = len(self._events) - self.max_events + self.max_events // 10
        while i < len(self._events) and not isinstance(self._events[i], ev.StepStarted):
            i += 1
        base = self.num_dropped + i
        first = self.state(base)
        del self._events[: base - self.num_dropped]
        self.step_seconds = {step: s for step, s in self.step_seconds.items() if step > first.step}
        self._keyframes = {m: f for m, f in self._keyframes.items() if m > base} | {base: first}
        self._corrections = {m: f for m, f in self._corrections.items() if m > base}
        self.num_dropped = base
