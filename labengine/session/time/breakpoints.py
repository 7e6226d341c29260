"""Stopping at an event: what to wait for, and where a run has stopped for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import count

from labengine.engine.interrupts import interrupts_deferred
from labengine.events import Event, StepRolledBack, ViolationFound
from labengine.hooks import Hooks, Subscription
from labengine.session.time.conditions import Condition
from labengine.timeline import Timeline


class Breakpoint:
    """Waits for an event. `close()` takes it away, twice is harmless; as a context manager it goes with the block."""

    def __init__(self, number: int, condition: Condition, owner: Breakpoints) -> None:
        self.number = number
        """Counted from 1: what %lab break calls it."""
        self.condition = condition
        self.num_hits = 0
        """How often a run stopped for it, or might have."""
        self._owner = owner
        self._subscription: Subscription | None = None

    @property
    def is_open(self) -> bool:
        """False after close()."""
        return self in self._owner.open

    def close(self) -> None:
        """Wait no more."""
        self._owner.remove(self)

    def __enter__(self) -> Breakpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        times = "once" if self.num_hits == 1 else f"{self.num_hits} times"
        return f"breakpoint {self.number}: {self.condition}, met {times}{'' if self.is_open else ' (closed)'}"


@dataclass(frozen=True)
class Stop:
    """Where a run has stopped, and why. It stands after the step; the views stand at the event itself."""

    breakpoint: Breakpoint
    event: Event
    step: int
    event_number: int | None
    """In the recording; of a violation, the event that made it so. None when nothing is recorded."""
    error: Exception | None
    """What the breakpoint's own test raised, if it did: then it is closed."""
    timeline: Timeline | None

    @property
    def moment(self) -> int | None:
        """The state just after the event."""
        return None if self.event_number is None else self.event_number + 1

    @cached_property
    def sentence(self) -> str:
        """What happened, in words. Made once: views ask for it with every message."""
        if self.error is not None:
            return f"{self.breakpoint.condition} raised {type(self.error).__name__}: {self.error}; it is closed"
        if isinstance(self.event, ViolationFound):
            return self.event.message
        return self._as_the_views_say() or _plainly(self.event)

    def _as_the_views_say(self) -> str | None:
        """None where the recording does not hold the event: there is none, it was dropped, or it has started over."""
        timeline, number = self.timeline, self.event_number
        if timeline is None or number is None or not any(e is self.event for e in timeline.events(number, number + 1)):
            return None
        from labengine_widgets.beats import beats

        told = beats(timeline, number, number + 1)
        return told[-1][1] if told else None

    def __str__(self) -> str:
        where = "" if self.event_number is None else f", event {self.event_number}"
        return f"stopped after step {self.step}{where}: {self.sentence} ({self.breakpoint.condition})"

    __repr__ = __str__


def _plainly(event: Event) -> str:
    """In words that need no state around it."""
    from labengine_widgets.why.tellings import tell

    return tell(event)


class Breakpoints:
    """Listens while somebody waits for something, and remembers the first event of a run that was waited for."""

    def __init__(self, hooks: Hooks, timeline: Timeline | None, step_number: Callable[[], int]) -> None:
        self.open: tuple[Breakpoint, ...] = ()
        self.stop: Stop | None = None
        """Where the newest run or step has stopped; None when nothing was met."""
        self.on_stop: Callable[[Stop], object] = lambda stop: None
        """Called after the step, on the thread that has taken it."""
        self._hooks, self._timeline, self._step_number = hooks, timeline, step_number
        self._numbers = count(1)
        self._num_armed = 0
        self._rollbacks: Subscription | None = None

    @property
    def is_hit(self) -> bool:
        """True when the run has to stop."""
        return self.stop is not None

    def add(self, condition: Condition) -> Breakpoint:
        """Wait for it from now on."""
        added = Breakpoint(next(self._numbers), condition, self)
        if self._rollbacks is None:
            self._rollbacks = self._hooks.subscribe(self._forget_taken_back, StepRolledBack)
        added._subscription = self._hooks.subscribe(lambda event: self._heard(added, event), *condition.kinds)
        self.open = (*self.open, added)
        return added

    def remove(self, breakpoint: Breakpoint) -> None:
        """Wait for it no more."""
        self.open = tuple(other for other in self.open if other is not breakpoint)
        if breakpoint._subscription is not None:
            breakpoint._subscription.close()
        if not self.open and self._rollbacks is not None:
            self._rollbacks.close()
            self._rollbacks = None

    def forget_stop(self) -> None:
        """A new run begins."""
        self.stop = None

    @contextmanager
    def armed(self, *, anew: bool = True) -> Iterator[None]:
        """While steps are taken for somebody: only then an event counts. anew: an earlier stop is forgotten."""
        with interrupts_deferred():
            if anew and not self._num_armed:
                self.forget_stop()
            self._num_armed += 1
            try:
                yield
            finally:
                self._num_armed -= 1
                if self.stop is not None and not self._num_armed:
                    self.on_stop(self.stop)

    def _heard(self, breakpoint: Breakpoint, event: Event) -> None:
        if not self._num_armed:
            return
        error: Exception | None = None
        try:
            is_met = breakpoint.condition.is_met_by(event)
        except Exception as raised:  # a test that fails has to be told: it stops the run, once
            is_met, error = True, raised
            breakpoint.close()
        if is_met:
            breakpoint.num_hits += 1
            if self.stop is None:
                number = self._number_of(event)
                self.stop = Stop(breakpoint, event, self._step_number(), number, error, self._timeline)

    def _number_of(self, event: Event) -> int | None:
        """The recording has heard it just before."""
        if isinstance(event, ViolationFound) and event.first_event is not None:
            return event.first_event
        return None if self._timeline is None else self._timeline.end - 1

    def _forget_taken_back(self, event: StepRolledBack) -> None:
        """What happened in a step that was taken back never happened."""
        if self.stop is not None and self.stop.step == event.step and self.stop.error is None:
            self.stop = None
