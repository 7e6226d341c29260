"""Breakpoints: a run ends after the step in which an event meets a condition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import count

from labengine.engine.interrupts import interrupts_deferred
from labengine.events import Event, StepRolledBack, ViolationFound
from labengine.record.hooks import Hooks, Subscription
from labengine.record.timeline import Timeline
from labengine.session.history.conditions import Condition
from labengine.system.closing import Closing


class Breakpoint(Closing):
    """One condition that ends runs. `close()` removes it, twice is harmless; a `with` block closes it at its end."""

    def __init__(self, number: int, condition: Condition, owner: Breakpoints) -> None:
        self.number = number
        """Its number in %lab break, from 1."""
        self.condition = condition
        self.num_hits = 0
        """Events that have met the condition while steps were taken."""
        self._owner = owner
        self._subscription: Subscription | None = None

    @property
    def is_open(self) -> bool:
        """False after close()."""
        return self in self._owner.open

    def close(self) -> None:
        """Remove it, so that it ends no more runs."""
        self._owner.remove(self)

    def __repr__(self) -> str:
        times = "once" if self.num_hits == 1 else f"{self.num_hits} times"
        return f"breakpoint {self.number}: {self.condition}, met {times}{'' if self.is_open else ' (closed)'}"


@dataclass(frozen=True)
class BreakpointHit:
    """The first event of a run that met a breakpoint. The engine goes to the end of that step; views show the event."""

    breakpoint: Breakpoint
    event: Event
    step: int
    event_number: int | None
    """The event's number in the recording; for a violation, that of the event that caused it. None without one."""
    error: Exception | None
    """The exception raised by the breakpoint's test, or None; such a breakpoint is closed."""
    timeline: Timeline | None

    @property
    def moment(self) -> int | None:
        """The moment just after the event."""
        return None if self.event_number is None else self.event_number + 1

    @cached_property
    def sentence(self) -> str:
        """The event in words. Cached, because views read it with every message."""
        if self.error is not None:
            error = f"{type(self.error).__name__}: {self.error}"
            return f"{self.breakpoint.condition} raised {error}; the breakpoint is closed"
        if isinstance(self.event, ViolationFound):
            return self.event.message
        return self._caption() or _plain_sentence(self.event)

    def _caption(self) -> str | None:
        """Return the views' caption of the event; None if the recording does not hold it."""
        timeline, number = self.timeline, self.event_number
        if timeline is None or number is None or not any(e is self.event for e in timeline.events(number, number + 1)):
            return None
        from labengine_widgets.words.captions import captions_of

        captions = captions_of(timeline, number, number + 1)
        return captions[-1][1] if captions else None

    def __str__(self) -> str:
        where = "" if self.event_number is None else f", event {self.event_number}"
        return f"stopped after step {self.step}{where}: {self.sentence} ({self.breakpoint.condition})"

    __repr__ = __str__


def _plain_sentence(event: Event) -> str:
    """Describe an event in words that need no state around it."""
    from labengine_widgets.words.phrases import phrase

    return phrase(event)


class Breakpoints:
    """The breakpoints of one lab. Listens for their events, and keeps the first hit of the newest run."""

    def __init__(self, hooks: Hooks, timeline: Timeline | None, step_number: Callable[[], int]) -> None:
        self.open: tuple[Breakpoint, ...] = ()
        self.hit: BreakpointHit | None = None
        """The first hit of the newest run or step, or None."""
        self.on_hit: Callable[[BreakpointHit], object] = lambda hit: None
        """Called after the step, on the thread that took it."""
        self._hooks, self._timeline, self._step_number = hooks, timeline, step_number
        self._numbers = count(1)
        self._num_armed = 0
        self._rollbacks: Subscription | None = None

    @property
    def is_hit(self) -> bool:
        """True if the run must end."""
        return self.hit is not None

    def add(self, condition: Condition) -> Breakpoint:
        """Add a breakpoint."""
        added = Breakpoint(next(self._numbers), condition, self)
        with interrupts_deferred():
            if self._rollbacks is None:
                self._rollbacks = self._hooks.subscribe(self._forget_taken_back, StepRolledBack)
            added._subscription = self._hooks.subscribe(lambda event: self._test(added, event), *condition.kinds)
            self.open = (*self.open, added)
            return added

    def remove(self, breakpoint: Breakpoint) -> None:
        """Remove a breakpoint; ignore one that is already gone."""
        with interrupts_deferred():
            self.open = tuple(other for other in self.open if other is not breakpoint)
            if breakpoint._subscription is not None:
                breakpoint._subscription.close()
            if not self.open and self._rollbacks is not None:
                self._rollbacks.close()
                self._rollbacks = None

    def forget_hit(self) -> None:
        """Forget the hit, as a new run does when it begins."""
        self.hit = None

    @contextmanager
    def armed(self, *, forgetting: bool = True) -> Iterator[None]:
        """Count events inside this block, in which steps are taken. forgetting: forget an earlier hit first."""
        with interrupts_deferred():
            if forgetting and not self._num_armed:
                self.forget_hit()
            self._num_armed += 1
            try:
                yield
            finally:
                self._num_armed -= 1
                if self.hit is not None and not self._num_armed:
                    self.on_hit(self.hit)

    def _test(self, breakpoint: Breakpoint, event: Event) -> None:
        if not self._num_armed:
            return
        error: Exception | None = None
        try:
            is_met = breakpoint.condition.is_met_by(event)
        except Exception as raised:  # a test that raises ends the run once, so that it is seen
            is_met, error = True, raised
            breakpoint.close()
        if is_met:
            breakpoint.num_hits += 1
            if self.hit is None:
                number = self._number_of(event)
                self.hit = BreakpointHit(breakpoint, event, self._step_number(), number, error, self._timeline)

    def _number_of(self, event: Event) -> int | None:
        """Return the number of an event that the recording has just appended."""
        if isinstance(event, ViolationFound) and event.first_event is not None:
            return event.first_event
        return None if self._timeline is None else self._timeline.end - 1

    def _forget_taken_back(self, event: StepRolledBack) -> None:
        """Forget a hit in a step that was rolled back."""
        if self.hit is not None and self.hit.step == event.step and self.hit.error is None:
            self.hit = None
