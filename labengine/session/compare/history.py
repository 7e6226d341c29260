"""Breakpoints, rewinds and follow-ups of both sides of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from labengine.config import ConfigError, as_int
from labengine.engine.interrupts import interrupts_deferred
from labengine.events import Event
from labengine.session.compare.lockstep import progress
from labengine.session.compare.pair import CutOffRewind, SidePair
from labengine.session.compare.pair_runs import PairRuns
from labengine.session.compare.sides import LiveSide
from labengine.session.history.breakpoints import Breakpoint
from labengine.session.history.history import History
from labengine.system.closing import Closing


@dataclass(frozen=True, slots=True, repr=False)
class PairBreakpoint(Closing):
    """One breakpoint on both sides. `close()` removes both, twice is harmless; usable in a `with` block.

    number: its number in %lab break, from 1. left, right: the breakpoint of each side.
    """

    number: int
    left: Breakpoint
    right: Breakpoint

    @property
    def is_open(self) -> bool:
        """False once it is closed on both sides."""
        return self.left.is_open or self.right.is_open

    @property
    def num_hits(self) -> tuple[int, int]:
        """Per side, the events that have met the condition."""
        return self.left.num_hits, self.right.num_hits

    def close(self) -> None:
        """Remove the breakpoint from both sides."""
        self.left.close()
        self.right.close()

    def __repr__(self) -> str:
        left, right = self.num_hits
        state = "" if self.is_open else " (closed)"
        return f"breakpoint {self.number}, on both sides: {self.left.condition}, met {left} + {right} times{state}"


class PairBreakpoints:
    """The breakpoints that were added to both sides together."""

    def __init__(self, pair: SidePair) -> None:
        self._pair = pair
        self._numbers = count(1)
        self._added: tuple[PairBreakpoint, ...] = ()

    @property
    def open(self) -> tuple[PairBreakpoint, ...]:
        """The open ones, oldest first."""
        return tuple(breakpoint for breakpoint in self._added if breakpoint.is_open)

    def add(self, kind: type[Event] | str | Callable[[Event], object] | None, fields: dict[str, Any]) -> PairBreakpoint:
        """Add a breakpoint to both sides, or to neither if one side refuses it."""
        left, right = self._pair.labs
        with interrupts_deferred():
            one = left.session.break_on(kind, fields)
            try:
                other = right.session.break_on(kind, fields)
            except BaseException:
                one.close()
                raise
            added = PairBreakpoint(next(self._numbers), one, other)
            self._added = (*self.open, added)
            return added


class PairHistory:
    """Rewinds both engines, and runs a scenario's follow-ups."""

    def __init__(self, pair: SidePair, runs: PairRuns) -> None:
        self._pair = pair
        self._runs = runs

    def rewind(self, step: int) -> None:
        """Rewind both engines to where step `step + 1` was about to begin. See Comparison.rewind."""
        if self._pair.labs and not self._pair.lockstep.is_behind:
            self._steps_for(step)
        self._runs.pause()
        with self._pair.lock:
            if self._pair.cut_off is None:
                self._pair.complete()
            steps = self._steps_for(step)
            with self._noting_cut_off(step), self._pair.going_back(), self._runs.rewinds.counted():
                for lab, to in zip(self._pair.labs, steps, strict=True):
                    self._rewind_one(lab, to, step)
                self._pair.follow_ups.note_rewound(steps[0])
                self._pair.begin_aligned()

    @contextmanager
    def _noting_cut_off(self, step: int) -> Iterator[None]:
        """Note a rewind that is cut off, so that the next act does it again."""
        pair = self._pair
        try:
            yield
            pair.cut_off = None
        except BaseException:
            with interrupts_deferred():
                pair.cut_off = CutOffRewind(step, pair.where, lambda: self.rewind(step))
            raise

    def _rewind_one(self, lab: LiveSide, to: int, step: int) -> None:
        try:
            History(lab.session).rewind(to)
        except BaseException as error:
            error.add_note(f"The sides may be at different steps: comparison.rewind({step}) realigns them.")
            raise

    def _steps_for(self, step: object) -> list[int]:
        """Return each side's step. Raises ConfigError, before anything has changed, if a side cannot go there."""
        histories = [History(lab.session) for lab in self._pair.labs]
        known = [history.num_known_steps for history in histories]
        asked = as_int(step)
        if asked is None or not 0 <= asked <= max(known):
            taken = f"{max(known)} step{'s' * (max(known) != 1)}"
            raise ConfigError(f"step must be between 0 and {max(known)} (the sides have taken {taken}), got {step!r}")
        steps = [min(asked, newest) for newest in known]
        for history, to in zip(histories, steps, strict=True):
            history.refuse_rewind(to)
        if len({history.num_requests_before(to) for history, to in zip(histories, steps, strict=True)}) > 1:
            raise ConfigError(
                f"the sides had different requests after {step} steps, so they cannot be compared there. "
                f"comparison.left.fork({step}) shows one side; comparison.reset() starts both over"
            )
        return steps

    # -- follow-ups ----------------------------------------------------------------------------------------------------

    @property
    def has_follow_up(self) -> bool:
        """True while follow_up() has something to show."""
        return bool(self._pair.follow_ups) and self._pair.is_live

    def follow_up(self) -> None:
        """Do all follow-ups on both sides, after the step at which they are due. Raises ConfigError if none is left."""
        pair = self._pair
        if not pair.follow_ups:
            raise ConfigError("no follow-up is left; use labengine.bug(id).compare() to prepare one")
        with pair.lock:
            pair.complete()
            pair.require_aligned()
            self._go_to_the_next()
            while pair.follow_ups:
                pair.require_aligned()
                pair.do_aligned(pair.follow_ups.take())

    def _go_to_the_next(self) -> None:
        due, left = self._pair.follow_ups.due_after, self._pair.labs[0]
        if progress(left)[0] >= due:
            return
        if History(left.session).num_known_steps < due:
            raise ConfigError(f"the follow-up begins after step {due}: take both sides there with comparison.step()")
        self.rewind(due)
