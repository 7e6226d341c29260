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
    """Raised when a closed lab is asked to change."""

    def __init__(self, why: str = "") -> None:
        super().__init__(why or "this lab is closed; make a new one")


class Stepper:
    """The engine, its lock and its open step. Stepping, adding and aborting take the lock and finish an open step.

    make_engine: returns an empty engine, and the events to emit once it is installed.
    on_interrupted_wait: called when an interrupt ends a wait for the lock.
    """

    def __init__(
        self, make_engine: Callable[[], tuple[Engine, list[Event]]], on_interrupted_wait: Callable[[], object]
    ) -> None:
        self._make_engine = make_engine
        self._lock = FairLock(on_interrupted_wait)
        self._is_closed = False
        self.why_closed = ""
        """The reason of the closing, in a sentence, if it was not a call of close(); else empty."""
        self._open_step: Iterator[Phase] | None = None
        self.restart()

    def restart(self, *also: Callable[[], object]) -> None:
        """Replace the engine with an empty one, reset all figures, and call `also`; listeners get events afterwards.

        All of this happens or nothing does, because a part's constructor may raise. An open step is always rolled back.
        """
        self._open_step = None
        engine, events = self._make_engine()
        self.engine = engine
        self.phase: Phase | None = None
        """The last phase done; None if nothing was left to do."""
        self.seconds_stepping = 0.0
        self.peak_used_blocks = 0
        for act in also:
            act()
        engine.hooks.emit_all(events)

    # -- the lock ------------------------------------------------------------------------------------------------------

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock for a change. RuntimeError once closed, and inside a hook listener."""
        with self._lock:
            self.refuse_if_closed()
            self.refuse_inside_listener()
            yield

    @contextmanager
    def between_steps(self) -> Iterator[None]:
        """Hold the lock between two steps, after finishing an open one. Interrupts are deferred meanwhile."""
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
        """Hold the lock to read requests; without a lock if a step in progress leaves no placeholder tokens in them."""
        return self.reading() if self.engine.anticipates else nullcontext()

    @property
    def is_held_here(self) -> bool:
        """True while the calling thread holds the lock."""
        return self._lock.is_mine

    # -- a step --------------------------------------------------------------------------------------------------------

    def next_phase(self) -> Phase | None:
        """Do the next phase of the open step, or the first of a new one. None if nothing is left to do."""
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

        The caller holds the lock, because a run reads the scheduler after the step, before other threads change it.
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
        used = self.engine.num_used_blocks, self.engine.report.peak_used_blocks  # another engine's step is one phase
        self.peak_used_blocks = max(self.peak_used_blocks, *used)
        return self.phase

    @property
    def has_open_step(self) -> bool:
        """True while an open step is between two phases."""
        return self._open_step is not None

    @property
    def is_inside_step(self) -> bool:
        """True while the newest step is incomplete; also on the thread that takes it."""
        return self.phase not in (None, "update")

    def drop_open_step(self) -> None:
        """Roll the open step back."""
        self._open_step = None

    # -- the end -------------------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """True after close()."""
        return self._is_closed

    def close(self) -> None:
        """Roll an open step back, and refuse all later changes. Reading stays possible."""
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
            raise RuntimeError("this was called inside a hook listener: listeners may only observe")
