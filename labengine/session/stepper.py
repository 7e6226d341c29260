"""Taking steps for many hands: one fair lock, one step open at a time, by hand or in the background."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter

from labengine.engine.engine import Engine, Phase, StepReport
from labengine.engine.interrupts import interrupts_deferred
from labengine.events import Event
from labengine.session.background import Background, LabClosedError
from labengine.session.time.breakpoints import Breakpoints
from labengine.session.turns import FairLock


class Stepper:
    """Owns the engine. Whoever steps, adds or looks takes a turn; stepping, adding and aborting finish an open step."""

    def __init__(self, make_engine: Callable[[], tuple[Engine, list[Event]]], breakpoints: Breakpoints) -> None:
        self._make_engine = make_engine
        self._breakpoints = breakpoints
        self._lock = FairLock(on_interrupt=self._hurry_background)
        self._num_free_runs = 0
        self._is_closed = False
        self._open_step: Iterator[Phase] | None = None
        self.background = Background(self._step_in_background)
        self.restart()

    def drop_open_step(self) -> None:
        """Take the open step back."""
        self._open_step = None

    def restart(self, *also: Callable[[], object]) -> None:
        """Begin with an empty engine and all figures at zero, and do `also`, before listeners hear of the new engine.

        All of it happens, or nothing (a part may refuse to be made); an open step is taken back in any case.
        """
        self._open_step = None
        engine, events = self._make_engine()
        self.engine = engine
        self.phase: Phase | None = None
        self.seconds_stepping = 0.0
        self.peak_used_blocks = 0
        for act in also:
            act()
        engine.hooks.emit_all(events)

    @property
    def is_running(self) -> bool:
        """True while the steps take themselves, False while somebody steps by hand."""
        return self._num_free_runs > 0 or self.background.is_running

    @property
    def is_closed(self) -> bool:
        """True after close()."""
        return self._is_closed

    @property
    def has_open_step(self) -> bool:
        """True while a step by hand stands between two phases."""
        return self._open_step is not None

    def step(self) -> StepReport:
        """Take one step, or finish the open one."""
        with self.turn():
            phase = self._advance()
            while phase not in (None, "update"):
                phase = self._advance()
            return self.engine.report

    def step_freely(self) -> StepReport:
        """A step of a run. RuntimeError when it found nothing to do though there is work: a scheduler that starves."""
        with self.turn():
            report, scheduler = self.step_unseen(), self.engine.scheduler
            if not (report or scheduler.is_idle):
                waiting = ", ".join(str(request.request_id) for request in [*scheduler.running, *scheduler.waiting])
                raise RuntimeError(f"the scheduler found nothing to run, though requests wait: {waiting}")
            return report

    def next_phase(self) -> Phase | None:
        """The next phase of the open step, or the first of a new one; None when there is nothing to do."""
        with self.turn():
            return self._advance()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Alone with the engine, in order of asking. RuntimeError once closed, and inside a hook listener."""
        with self._lock:
            self.refuse_if_closed()
            self._refuse_inside_listener()
            yield

    @contextmanager
    def turn_to_look(self) -> Iterator[None]:
        """A turn that changes nothing: also after close()."""
        with self._lock:
            yield

    def turn_to_read(self) -> AbstractContextManager[None]:
        """To read a request. It waits for a step only if in the middle of one what is anticipated may stand there."""
        return self.turn_to_look() if self.engine.anticipates else nullcontext()

    @contextmanager
    def between_steps(self) -> Iterator[None]:
        """A turn with no step open."""
        with self.turn():
            if self._open_step is not None:
                self.step()
            yield

    @contextmanager
    def running_freely(self) -> Iterator[None]:
        """Views follow instead of playing each step."""
        with interrupts_deferred():
            self._num_free_runs += 1
            try:
                yield
            finally:
                self._num_free_runs -= 1

    def start(self) -> None:
        """Step in the background. RuntimeError once closed, and inside a hook listener."""
        with interrupts_deferred():
            self.refuse_if_closed()
            self._refuse_inside_listener()
            self._breakpoints.forget_stop()
            self.background.start()

    def pause(self) -> None:
        """Stop the background after the step under way. Inside a turn there is no waiting for somebody else's."""
        self.background.pause(wait=not self._lock.is_mine)

    def close(self) -> None:
        """End the background; no more turns. RuntimeError inside a hook listener: a step is under way."""
        self._refuse_inside_listener()
        with interrupts_deferred():
            self.background.close()
            with self._lock:
                self._open_step = None
                self._is_closed = True

    def refuse_if_closed(self) -> None:
        """RuntimeError once closed."""
        if self._is_closed:
            raise LabClosedError

    def _step_in_background(self) -> bool:
        """False when there is nothing left to do, and at a breakpoint."""
        with self._breakpoints.armed(anew=False):
            report = self.step_freely()
        return bool(report) and not self._breakpoints.is_hit

    def _hurry_background(self) -> None:
        """Somebody who was waiting for a turn was interrupted: perhaps a step in the background does not end."""
        self.background.hurry()

    def _refuse_inside_listener(self) -> None:
        if self._lock.is_mine and self.engine.hooks.is_emitting:
            raise RuntimeError("this was called inside a hook listener: listeners look and never steer")

    def step_unseen(self) -> StepReport:
        """Finish the open step, or take one at which nobody looks in between. Only in a turn."""
        if self._open_step is not None:
            return self.step()
        started = perf_counter()
        self.phase = None
        try:
            report = self.engine.step_freely()
        finally:
            self.seconds_stepping += perf_counter() - started
        self.phase = "update" if report else None
        self.peak_used_blocks = max(self.peak_used_blocks, report.peak_used_blocks)
        return report

    def _advance(self) -> Phase | None:
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
