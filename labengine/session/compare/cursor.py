"""The moments of both recordings that a comparison's view shows, and moving them step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from labengine.config import ConfigError, as_int
from labengine.record.timeline import Timeline
from labengine.session.compare.pair import Ends, SidePair
from labengine.session.history.breakpoints import BreakpointHit
from labengine.session.history.crash import Crash
from labengine.session.history.moments import Look, moment_of
from labengine.session.looking import CRASH

if TYPE_CHECKING:  # widgets are imported for views only
    from labengine_widgets.compare.link import PairLink

Timelines = tuple[Timeline, Timeline]


@dataclass(frozen=True, slots=True)
class PairLook:
    """The recorded states of both sides at the shown moments, as text."""

    left: Look
    right: Look
    names: tuple[str, str]

    @property
    def text(self) -> str:
        """Both, one below the other."""
        sides = zip(self.names, (self.left, self.right), strict=True)
        return "\n\n".join(f"{name}: {look.text}" for name, look in sides)

    def __repr__(self) -> str:
        return self.text


class Cursor:
    """The shown moments of a pair. Engines do not move. view: returns the view, None while it was not shown."""

    def __init__(self, pair: SidePair, names: tuple[str, str], view: Callable[[], PairLink | None]) -> None:
        self._pair, self._names, self._view = pair, names, view
        self._shown: tuple[Ends, Ends, Ends] | None = None
        """(generations, newest moments, shown moments) of the last move; outdated once an event is added."""

    @property
    def moments(self) -> Ends | None:
        """The shown moments; None at the newest ones."""
        if self._shown is None or self._shown[:2] != (self._pair.generations, self._pair.newest):
            return None
        return self._shown[2]

    def goto(self, step: int | Literal["crash"], event: int | None = None) -> PairLook:
        """Show both sides after a step, or at one side's crash. See Comparison.goto."""
        if event is not None:
            raise ConfigError(f"a moment inside a step is one side's own: comparison.left.goto({step!r}, {event!r})")
        timelines = self._pair.timelines
        if step == CRASH:
            return self._look(_crash_moments(timelines, (self._pair.left.crash, self._pair.right.crash)))
        return self._look(_moments_of(timelines, step))

    def back(self, num_steps: int) -> PairLook:
        """Show the end of the step so many before the shown one."""
        return self.goto(_neighbouring_steps(self._pair.timelines, self.moments or self._pair.newest, num_steps)[0])

    def forward(self, num_steps: int) -> PairLook:
        """Show the end of the step so many after the shown one, up to the newest."""
        return self.goto(_neighbouring_steps(self._pair.timelines, self.moments or self._pair.newest, num_steps)[1])

    def show_hits(self, hits: tuple[BreakpointHit | None, BreakpointHit | None]) -> None:
        """Have the view show the event of the first hit, the left side's first."""
        view = self._view()
        for side, hit in enumerate(hits):
            if hit is not None and hit.moment is not None:
                if view is not None:
                    view.show_moment(side, hit.moment)
                return

    def _look(self, moments: Ends) -> PairLook:
        newest, view = self._pair.newest, self._view()
        self._shown = None if moments == newest else (self._pair.generations, newest, moments)
        if view is not None:
            view.show_moments(None if moments == newest else moments)
        left, right = (_look_at(timeline, at) for timeline, at in zip(self._pair.timelines, moments, strict=True))
        return PairLook(left, right, self._names)


def _look_at(timeline: Timeline, moment: int) -> Look:
    first, newest = _steps(timeline)
    if first != newest:
        return Look.at(timeline, moment)
    from labengine_widgets.pictures.ascii import block_map  # for views only

    return Look(moment, newest, f"no step taken\n{block_map(timeline.state(moment).snapshot(), timeline)}")


def _moments_of(timelines: Timelines, step: object) -> Ends:
    """Return the moments after a step; a side that took fewer is at its end. ConfigError when neither has the step."""
    first, newest = _recorded_steps(timelines)
    asked = as_int(step)
    if asked is None or not first <= asked <= newest:
        dropped = " (older ones were dropped)" if any(timeline.num_dropped for timeline in timelines) else ""
        raise ConfigError(f"step {step} is not in both recordings, which go from {first} to {newest}{dropped}")
    return _moment(timelines[0], asked), _moment(timelines[1], asked)


def _crash_moments(timelines: Timelines, crashes: tuple[Crash | None, Crash | None]) -> Ends:
    """Return the moment of a crash; a side without one is at that step's end. ConfigError without any."""
    step = next((crash.step for crash in crashes if crash is not None), None)
    if step is None:
        raise ConfigError('goto("crash"): no part of either side has raised an exception inside a step')
    left, right = (
        _moment(timeline, step) if crash is None else crash.moment_in(timeline)
        for timeline, crash in zip(timelines, crashes, strict=True)
    )
    return left, right


def _moment(timeline: Timeline, step: int) -> int:
    first, newest = _steps(timeline)
    return timeline.end if first == newest or step > newest else moment_of(timeline, step)


def _recorded_steps(timelines: Timelines) -> Ends:
    """Return (the step before the first that both have recorded, the newest of either). ConfigError without any."""
    known = [_steps(timeline) for timeline in timelines]
    first, newest = max(steps[0] for steps in known), max(steps[1] for steps in known)
    if first == newest:
        raise ConfigError("no step has been taken yet: %lab step, or comparison.step(), takes one on both sides")
    return first, newest


def _neighbouring_steps(timelines: Timelines, moments: Ends, num_steps: object) -> Ends:
    """Return the steps a number of steps before and after the shown one; inside a step, its end is the first after.

    Raises ConfigError for an invalid number of steps.
    """
    asked = as_int(num_steps)
    if asked is None or asked < 1:
        raise ConfigError(f"how many steps must be an integer from 1, got {num_steps!r}")
    first, newest = _recorded_steps(timelines)
    now = max(timeline.state(moment).step for timeline, moment in zip(timelines, moments, strict=True))
    is_inside = now > first and any(at < end for at, end in zip(moments, _moments_of(timelines, now), strict=True))
    return now - asked, min(now + asked - is_inside, newest)


def _steps(timeline: Timeline) -> tuple[int, int]:
    return timeline.state(timeline.num_dropped).step, timeline.state().step
