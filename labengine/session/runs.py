"""Runs of several steps: counted, until a condition holds, or in the background. A breakpoint ends any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from labengine.config import checked_int
from labengine.engine.interrupts import interrupts_deferred, raise_deferred
from labengine.engine.step_report import Phase, StepReport
from labengine.session.background import Background
from labengine.session.history.breakpoints import Breakpoints
from labengine.session.stepper import Stepper


class RunCount:
    """The number of runs in progress; false at 0. Views follow a run instead of playing each step."""

    def __init__(self) -> None:
        self._number = 0

    def __bool__(self) -> bool:
        return self._number > 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count a run while it is in progress, even if Ctrl-C interrupts it."""
        counted = 0
        try:
            with interrupts_deferred():
                self._number += 1
                counted = 1
            yield
        finally:
            with interrupts_deferred():
                self._number -= counted


class Runs:
    """Takes a stepper's steps, with the breakpoints armed."""

    def __init__(self, stepper: Stepper, breakpoints: Breakpoints) -> None:
        self._stepper = stepper
        self._breakpoints = breakpoints
        self.in_progress = RunCount()
        """Number of runs and rewinds on threads that wait for their end."""
        self.background = Background(self._step_in_background)

    # -- by hand -------------------------------------------------------------------------------------------------------

    def step(self, num_steps: int = 1) -> StepReport:
        """Take steps one by one; return the last report, which is falsy if nothing was left to do."""
        num_steps = checked_int("num_steps", num_steps, 1)
        with self._breakpoints.armed():
            report = self._stepper.step()
            for _ in range(1, num_steps):
                raise_deferred()
                if not report or self._breakpoints.is_hit or not (following := self._stepper.step()):
                    break
                report = following
        return report

    def next_phase(self) -> Phase | None:
        """Do the next phase of a step. None if nothing is left to do."""
        with self._breakpoints.armed():
            return self._stepper.next_phase()

    # -- runs, whose steps may overlap ---------------------------------------------------------------------------------

    def run(self, until: Callable[[], object] | None = None) -> None:
        """Step until no request waits or runs, or until() is true after a step. Pauses the background first."""
        self.pause()
        with self._breakpoints.armed(), self.running():
            while self.take_step() and not self._breakpoints.is_hit:
                raise_deferred()
                if until is not None and until():
                    return

    def run_one(self) -> StepReport:
        """Take one step, as a run."""
        with self._breakpoints.armed(), self.running():
            return self.take_step()

    def take_step(self) -> StepReport:
        """Take one step of a run. RuntimeError if the scheduler schedules no tokens although requests wait or run."""
        with self._stepper.exclusive():
            report, scheduler = self._stepper.step_overlapping(), self._stepper.engine.scheduler
            if not (report or scheduler.is_idle):
                waiting = ", ".join(str(request.request_id) for request in [*scheduler.running, *scheduler.waiting])
                raise RuntimeError(f"the scheduler found nothing to run, although requests are waiting: {waiting}")
            return report

    @contextmanager
    def running(self) -> Iterator[None]:
        """Mark a run as in progress: views then follow it instead of playing each step."""
        with interrupts_deferred(), self.in_progress.counted():
            yield

    @property
    def is_running(self) -> bool:
        """True during a run, also in the background; False while steps are taken by hand."""
        return bool(self.in_progress) or self.background.is_running

    # -- in the background ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Step in the background. RuntimeError once closed, and inside a hook listener."""
        with interrupts_deferred():
            self._stepper.refuse_if_closed()
            self._stepper.refuse_inside_listener()
            self._breakpoints.forget_hit()
            self.background.start()

    def pause(self) -> None:
        """Stop the background after its current step. A thread that holds the lock does not wait for that step."""
        self.background.pause(wait=not self._stepper.is_held_here)

    def close(self) -> None:
        """End the background, and close the stepper. RuntimeError inside a hook listener: a step is in progress."""
        self._stepper.refuse_inside_listener()
        with interrupts_deferred():
            self.background.close()
            self._stepper.close()

    def _step_in_background(self) -> bool:
        """Take a step of the background run; return False at the end of the work and at a breakpoint."""
        with self._breakpoints.armed(forgetting=False):
            report = self.take_step()
        return bool(report) and not self._breakpoints.is_hit
