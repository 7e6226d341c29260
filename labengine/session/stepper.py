"""One engine for several threads: a fair lock, and at most one open step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter

from labengine.engine.engine import Engine
from labengine.engine.interrupts import interrupts_deferred
from labengine.engine.step_report import Phase, StepReport
from labengine.events import Event
from labengine.session.fair_lock import FairLock


class LabClosedError(RuntimeError):
    """A closed lab was asked to do something."""

    def __init__(self, why: str = "") -> None:
        super().__init__(why or "this lab is closed; make a new one")


class Stepper:
    """The engine, its lock and its open step. Stepping, adding and aborting take the lock and finish an open step.

    make_engine: returns an empty engine, and the events to emit once it is in place.
    on_interrupted_wait: called when an interrupt ends the wait for the lock.
    """

    def __init__(
        self, make_engine: Callable[[], tuple[Engine, list[Event]]], on_interrupted_wait: Callable[[], object]
    ) -> None:
        self._make_engine = make_engine
        self._lock = FairLock(on_interrupted_wait)
        self._is_closed = False
        self.why_closed = ""
        """Why, in a sentence, where nobody has called close(); empty otherwise."""
        self._open_step: Iterator[Phase] | None = None
        self.restart()

    def restart(self, *also: Callable[[], object]) -> None:
        """Replace the engine with an empty one, reset all figures, and call `also`; listeners get events afterwards.

        Either all of this happens or none of it (a part may refuse to be made). An open step is rolled back anyway.
        """
        self._open_step = None
        engine, events = self._make_engine()
        self.engine = engine
        self.phase: Phase | None = None
        """The phase done last; None when there was nothing to do."""
        self.seconds_stepping = 0.0
        self.peak_used_blocks = 0
        for act in also:
            act()
        engine.hooks.emit_all(events)

    # -- the lock ------------------------------------------------------------------------------------------------------

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock to change something. RuntimeError once closed, and inside a hook listener."""
        with self._lock:
            self.refuse_if_closed()
            self.refuse_inside_listener()
            yield

    @contextmanager
    def between_steps(self) -> Iterator[None]:
        """Hold the lock with no step open: an open one is finished first. The lock holds interrupts back meanwhile."""
        with self.exclusive():
            if self._open_step is not None:
                self.step()
            yield

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold the lock to read; also after close()."""
        with self._lock:
            yield

    def reading_requests(self) -> AbstractContextManager[None]:
        """Hold the lock to read requests; no lock where a step in progress leaves no placeholder tokens in them."""
        return self.reading() if self.engine.anticipates else nullcontext()

    @property
    def is_held_here(self) -> bool:
        """True while the calling thread holds the lock."""
        return self._lock.is_mine

    # -- a step --------------------------------------------------------------------------------------------------------

    def next_phase(self) -> Phase | None:
        """Do the next phase of the open step, or the first of a new one. None when there is nothing to do."""
        with self.exclusive():
            return self._next_phase()

    def step(self) -> StepReport:
        """Finish the open step, or take one, phase by phase."""
        with self.exclusive():
            while self._next_phase() not in (None, "update"):
                pass
            return self.engine.report

    def step_overlapping(self) -> StepReport:
        """Finish the open step, or take one whose forward pass the engine may overlap with the next step.

        The caller holds the lock: a run looks at the scheduler after the step, before another thread changes it.
        """
        if self._open_step is not None:
            return self.step()
        started = perf_counter()
        self.phase = None
        try:
            report = self.engine.step()
        finally:
            self.seconds_stepping += perf_counter() - started
        self.phase = "update" if report else None
        self.peak_used_blocks = max(self.peak_used_blocks, report.peak_used_blocks)
        return report

    def _next_phase(self) -> Phase | None:
        if self._open_step is None:
            self._open_step = self.engine.phases()
        started = perf_counter()
        self.phase = None
        try:
            self.phase = next(self._open_step, None)
        finally:
            self.seconds_stepping += perf_counter() - started
            if self.phase in (None, "update"):
                self._open_step = None
        self.peak_used_blocks = max(self.peak_used_blocks, self.engine.num_used_blocks)
        return self.phase

    @property
    def has_open_step(self) -> bool:
        """True while an open step is between two phases."""
        return self._open_step is not None

    @property
    def is_inside_step(self) -> bool:
        """True while the newest step has not reached its end; also on the thread that is taking it."""
        return self.phase not in (None, "update")

    def drop_open_step(self) -> None:
        """Take the open step back."""
        self._open_step = None

    # -- the end -------------------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """True after close()."""
        return self._is_closed

    def close(self) -> None:
        """Take an open step back; refuse to change anything from now on. Reading stays possible."""
        with interrupts_deferred(), self._lock:
            self._open_step = None
            self._is_closed = True

    def refuse_if_closed(self) -> None:
        """Raise LabClosedError after close()."""
        if self._is_closed:
            raise LabClosedError(self.why_closed)

    def refuse_inside_listener(self) -> None:
        """Raise RuntimeError on a thread whose step is calling a hook listener."""
        if self._lock.is_mine and self.engine.hooks.is_emitting:
            raise RuntimeError("this was called inside a hook listener: listeners look and never steer")
