"""The moments of both recordings that a comparison's view shows, and moves through them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from labengine.config import ConfigError
from labengine.session.compare.pair import Ends, SidePair
from labengine.session.history.breakpoints import BreakpointHit
from labengine.session.history.moments import Look, moment_after, moments_of, steps_after, steps_before
from labengine.session.looking import CRASH

if TYPE_CHECKING:  # widgets are imported for views only
    from labengine_widgets.compare.link import PairLink


@dataclass(frozen=True, slots=True)
class PairLook:
    """The recorded states of both sides at the shown moments, as text."""

    left: Look
    right: Look
    names: tuple[str, str]

    @property
    def text(self) -> str:
        """Both states, one below the other."""
        sides = zip(self.names, (self.left, self.right), strict=True)
        return "\n\n".join(f"{name}: {look.text}" for name, look in sides)

    def __repr__(self) -> str:
        return self.text


class Cursor:
    """The shown moments of a pair. Engines do not move. view: returns the view, None before it is shown."""

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
            raise ConfigError(f"only one side can be shown inside a step: comparison.left.goto({step!r}, {event!r})")
        return self._look(self._crash_moments() if step == CRASH else moments_of(self._pair.timelines, step))

    def back(self, num_steps: int) -> PairLook:
        """Show the end of the step `num_steps` before the shown one."""
        return self._look(steps_before(self._pair.timelines, self.moments or self._pair.newest, num_steps))

    def forward(self, num_steps: int) -> PairLook:
        """Show the end of the step `num_steps` after the shown one, at most the newest."""
        return self._look(steps_after(self._pair.timelines, self.moments or self._pair.newest, num_steps))

    def _crash_moments(self) -> tuple[int, ...]:
        """Return each side's crash, or its end of that step if it has none. ConfigError if neither has a crash."""
        crashes = self._pair.left.crash, self._pair.right.crash
        step = next((crash.step for crash in crashes if crash is not None), None)
        if step is None:
            raise ConfigError('goto("crash"): neither side has raised an exception inside a step')
        return tuple(
            moment_after(timeline, step) if crash is None else crash.moment_in(timeline)
            for timeline, crash in zip(self._pair.timelines, crashes, strict=True)
        )

    def show_hits(self, hits: tuple[BreakpointHit | None, BreakpointHit | None]) -> None:
        """Have the view show the event of the first hit, the left side's first."""
        view = self._view()
        for side, hit in enumerate(hits):
            if hit is not None and hit.moment is not None:
                if view is not None:
                    view.show_moment(side, hit.moment)
                return

    def _look(self, of: tuple[int, ...]) -> PairLook:
        moments, newest, view = (of[0], of[1]), self._pair.newest, self._view()
        self._shown = None if moments == newest else (self._pair.generations, newest, moments)
        if view is not None:
            view.show_moments(None if moments == newest else moments)
        left, right = (Look.at(timeline, at) for timeline, at in zip(self._pair.timelines, moments, strict=True))
        return PairLook(left, right, self._names)
