"""Time for both sides of a comparison: stops at what one waits for, and back to a step with both engines."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, NoReturn

from labengine.config import ConfigError, is_single_int
from labengine.engine.interrupts import interrupts_deferred
from labengine.session.compare.lockstep import progress
from labengine.session.compare.pair_breakpoint import PairBreakpoint
from labengine.session.compare.pair_stepping import PairStepping
from labengine.session.compare.paired import ON_THEIR_OWN
from labengine.session.time.inputs import AddInput

if TYPE_CHECKING:
    from labengine.events import Event
    from labengine.lab import Lab


class PairTime(PairStepping):
    """Breakpoints of both sides, and their way back."""

    _armed: tuple[PairBreakpoint, ...] = ()
    _numbers: count[int]

    def break_on(
        self, kind: type[Event] | str | Callable[[Event], object] | None = None, **fields: Any
    ) -> PairBreakpoint:
        """Have a run of both stop after the step in which something happens on either side; see Lab.break_on.

        `close()` what is returned to wait no more, on neither side. Both wait, or neither: what Lab.break_on refuses
        on one side changes nothing on the other.
        """
        left, right = self._labs()
        with interrupts_deferred():
            one = left.break_on(kind, **fields)
            try:
                other = right.break_on(kind, **fields)
            except BaseException:
                one.close()
                raise
            self._numbers = getattr(self, "_numbers", count(1))
            armed = PairBreakpoint(next(self._numbers), one, other)
            self._armed = (*self.breakpoints, armed)
            return armed

    @property
    def breakpoints(self) -> tuple[PairBreakpoint, ...]:
        """Those that wait on both sides, oldest first; comparison.left.breakpoints has its own ones too."""
        return tuple(breakpoint for breakpoint in self._armed if breakpoint.is_open)

    def rewind(self, step: int) -> None:
        """Go back, with both engines, to where step `step + 1` was about to begin; see Lab.rewind.

        A side that took fewer steps, for want of work, stands at its end. What `later` had done after that step can be
        asked for again. ConfigError, before anything changes, for a step not taken, and where the two had not been
        given the same requests by then. An interrupt may leave the sides apart: the same call goes on.
        """
        self._labs()
        if not self._lockstep.is_behind:
            self._steps_back(step)
        self.pause()
        with self._turn:
            self._make_good()
            steps = self._steps_back(step)
            for lab, to in zip(self._labs(), steps, strict=True):
                self._rewind_one(lab, to, step)
            self._later.stand(steps[0])
            self._begin_level()

    def _rewind_one(self, lab: Lab, to: int, step: int) -> None:
        try:
            lab.rewind(to)
        except BaseException as error:
            error.add_note(f"The two sides may stand apart: comparison.rewind({step}) brings both there.")
            raise

    def _steps_back(self, step: object) -> list[int]:
        """Where either side is to stand. ConfigError, before anything has changed."""
        labs = self._labs()
        known = [lab.num_known_steps for lab in labs]
        if not is_single_int(step) or not 0 <= step <= max(known):  # type: ignore[operator]
            taken = f"{max(known)} step{'s' * (max(known) != 1)}"
            raise ConfigError(f"step must be a number from 0 to {max(known)}: the two have taken {taken}, got {step!r}")
        steps = [min(int(step), newest) for newest in known]  # type: ignore[call-overload]
        for lab, to in zip(labs, steps, strict=True):
            lab._refuse_rewind(to)
        if len({_num_requests(lab, to) for lab, to in zip(labs, steps, strict=True)}) > 1:
            raise ConfigError(
                f"the two had not been given the same requests when they had taken {step} steps, so they cannot stand "
                f"there together. {ON_THEIR_OWN}comparison.left.fork({step}) shows one; comparison.reset() begins anew"
            )
        return steps

    def later(self) -> None:
        """What does it cost later? The scenario goes on, on both sides, from where it stood before any rewind.

        ConfigError when it has no more to show.
        """
        if not self._later:
            raise ConfigError("there is nothing more to show: labengine.bug(id).compare() prepares what comes later")
        with self._turn:
            self._make_good()
            self._require_level()
            self._go_to_the_story()
            while self._later:
                self._require_level()
                self._done(self._later.take())

    def _go_to_the_story(self) -> None:
        due, left = self._later.due_after, self._labs()[0]
        if progress(left)[0] >= due:
            return
        if left.num_known_steps < due:
            raise ConfigError(f"the story goes on after step {due}: comparison.step() takes both there first")
        self.rewind(due)

    def fork(self, step: int | None = None, **settings: Any) -> NoReturn:
        """Refused: a fork is one side's."""
        asked = ", ".join([*([] if step is None else [str(step)]), *(f"{k}={v!r}" for k, v in settings.items())])
        raise ConfigError(
            f"a fork is made of one side: comparison.left.fork({asked}) or comparison.right.fork({asked}), and "
            f"labengine.compare(one, other) puts two such labs side by side"
        )


def _num_requests(lab: Lab, step: int) -> int:
    """Requests that were given before a step."""
    with lab._stepper.turn_to_look():
        return sum(isinstance(given, AddInput) for given in lab._inputs.until(step))
