"""Steps and runs of both sides of a comparison, on the caller's thread or in the background."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from labengine.config import checked_int
from labengine.engine.interrupts import interrupts_deferred, raise_deferred
from labengine.engine.step_report import StepReport
from labengine.session.background import Background
from labengine.session.compare.lockstep import FollowUps
from labengine.session.compare.pair import SidePair
from labengine.session.compare.sides import LiveSide
from labengine.session.history.breakpoints import BreakpointHit
from labengine.session.history.history import History
from labengine.session.runs import RunCount


class PairRuns:
    """Runs both sides step by step. show_hits: called after a run or a single step, which may have hit a breakpoint."""

    def __init__(self, pair: SidePair, show_hits: Callable[[], object]) -> None:
        self._pair = pair
        self._show_hits = show_hits
        self._in_progress, self.rewinds = RunCount(), RunCount()
        """Number of runs and rewinds on threads that wait for their end."""
        self._background_run = ExitStack()
        """Cleanup to do when a background run ends."""
        self.background = Background(self._step_in_background, self._background_run.close)

    # -- by hand -------------------------------------------------------------------------------------------------------

    def step(self, num_steps: int = 1) -> list[Any]:
        """Take steps on both sides, one by one; return the last reports. A side that is ahead waits for the other."""
        num_steps = checked_int("num_steps", num_steps, 1)
        reports = self._step_both()
        for _ in range(1, num_steps):
            if not any(reports) or any(self.hits) or not any(following := self._step_both()):
                break
            reports = following
        return reports

    def _step_both(self) -> list[Any]:
        with self._pair.lock:
            reports = self._pair.complete()
            if reports is None:
                reports = self._step()
        self._show_hits()
        return reports

    def _step(self) -> list[Any]:
        pair = self._pair
        pair.require_same_requests()
        pair.follow_ups.note_other_act()
        waiting = None if not pair.ahead else pair.labs[0 if pair.ahead > 0 else 1]
        if waiting is not None:
            waiting.session.breakpoints.forget_hit()
        idle = (waiting, self._crashed())

        def step(lab: LiveSide) -> StepReport:
            return lab.session.stepper.engine.report if lab in idle else lab.session.runs.step()

        return pair.do_aligned(step)

    def _crashed(self) -> LiveSide | None:
        """Return the side at its crash, if the other one can go on."""
        crashed = [lab for lab in self._pair.labs if History(lab.session).is_at_crash]
        return crashed[0] if len(crashed) == 1 else None

    # -- runs, whose steps may overlap ---------------------------------------------------------------------------------

    def run(self, until: Callable[[], object] | None) -> None:
        """Step both until neither has work left, one hits a breakpoint, or until() is true after a step."""
        self.pause()
        self._align()
        with self._running():
            while self._take_step():
                raise_deferred()
                if until is not None and until():
                    return

    @property
    def is_running(self) -> bool:
        """True during a run of both, also in the background."""
        return bool(self._in_progress or self.rewinds) or self.background.is_running

    @property
    def hits(self) -> tuple[BreakpointHit | None, BreakpointHit | None]:
        """Per side, the first breakpoint that the newest run or step has hit, or None."""
        if not self._pair.is_live:
            return None, None
        left, right = (side.lab.session.breakpoints.hit for side in self._pair.lockstep.sides)
        return left, right

    def _take_step(self) -> bool:
        """Take a step of a run; return False if the run must end."""
        crashed = self._crashed()
        reports = self._pair.do(lambda lab: None if lab is crashed else lab.session.runs.take_step())
        return any(map(bool, reports)) and not any(self.hits)

    def _align(self) -> None:
        """Complete an interrupted act here, so that its error is the caller's. ConfigError for unaligned sides."""
        with self._pair.lock:
            self._pair.complete()
            self._pair.require_aligned()

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Mark runs of both labs as in progress: views then follow them instead of playing each step."""
        with interrupts_deferred():
            with ExitStack() as stack:
                for lab in self._pair.labs:
                    stack.enter_context(lab.session.breakpoints.armed())
                    stack.enter_context(lab.session.runs.running())
                stack.enter_context(self._in_progress.counted())
                yield
            self._show_hits()

    # -- in the background ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Step both in the background until the work is done or pause() is called."""
        with interrupts_deferred():
            if self._pair.labs and not self.is_running:
                self._align()
            self.background.start()

    def pause(self) -> None:
        """Stop the background after its current step: both sides are then after the same step."""
        if self._pair.labs:
            self.background.pause()

    def reset(self) -> None:
        """Reset to two empty engines; forget interrupted acts and follow-ups."""
        self.pause()
        with self._pair.lock:
            self._pair.lockstep.forget()
            self._pair.follow_ups, self._pair.cut_off = FollowUps(), None
            with self._pair.going_back():
                self._pair.lockstep.do(lambda lab: lab.session.reset())
                self._pair.begin_aligned()

    def _step_in_background(self) -> bool:
        """Take one step of the background run, during which both labs count as running."""
        if not self._in_progress:
            self._background_run.enter_context(self._running())
        has_more = False
        try:
            has_more = self._take_step()
        finally:
            if not has_more:
                self._background_run.close()
        return has_more
