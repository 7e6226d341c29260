"""The lab as its views see it: a labengine_widgets.ViewSource whose commands run on the lab's own thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from labengine.config import ConfigError
from labengine.fold import Fold
from labengine.hooks import Hooks
from labengine.session.stepper import Stepper
from labengine.timeline import Timeline

if TYPE_CHECKING:
    from labengine.lab import Lab
    from labengine.session.time.breakpoints import Stop

CLOSED = "This lab is closed. Its recording can still be looked at and asked; a new lab can be stepped."
"""What a view of a closed lab says in place of its controls."""


class LabViewSource:
    """Reads go straight through; wishes are posted, because widget callbacks may arrive on any thread.

    wishes: what the lab does for each action that a view may ask for.
    """

    def __init__(self, lab: Lab, stepper: Stepper, wishes: Mapping[str, Callable[..., Any]]) -> None:
        self.title = lab.title
        self.lab = lab.lab_id
        self.hooks: Hooks | None = lab.hooks
        self.timeline: Timeline | None = lab.timeline
        self.token_text = lab.token_text
        self._parts = lab.parts
        self._breakpoints = lab._breakpoints
        self._told_stop: tuple[Stop | None, str | None] = None, None
        self._stepper = stepper
        self._wishes = wishes

    @property
    def is_live(self) -> bool:
        """False once the lab is closed: only its recording is left."""
        return not self._stepper.is_closed

    @property
    def note(self) -> str:
        """What stands where the controls were, once the lab is closed."""
        return CLOSED if self._stepper.is_closed else ""

    @property
    def is_running(self) -> bool:
        """True while the lab steps by itself."""
        return self._stepper.is_running

    @property
    def phase(self) -> str | None:
        """The phase done last in an open step, None between steps."""
        return None if self._stepper.phase == "update" else self._stepper.phase

    @property
    def stopped(self) -> str | None:
        """The breakpoint that the newest run or step has met, in a sentence; None for none."""
        stop = self._breakpoints.stop
        if stop is not self._told_stop[0]:
            self._told_stop = stop, None if stop is None else str(stop)
        return self._told_stop[1]

    def fold(self) -> Fold:
        """A copy of the state now."""
        with self._stepper.turn_to_look():
            return Fold.of(self._stepper.engine.snapshot())

    def seams(self) -> dict[str, Any]:
        """Which method decides each kind of event here."""
        return self._seams

    @cached_property
    def _seams(self) -> dict[str, Any]:
        from labengine.session.reasons.seams import seams_of

        return seams_of(self._parts)

    def post(self, action: str, **arguments: Any) -> Future[Any]:
        """Have the lab's own thread do `action`; the Future carries the error, if any. ConfigError for another action.

        Actions: step, phase, start, pause, reset, add(prompt, copies, max_tokens), abort(request_id), goto(step),
        rewind(step).
        """
        if action not in self._wishes:
            raise ConfigError(f"a view may not ask for {action!r}; it may for {', '.join(self._wishes)}")
        call = partial(self._wishes[action], **arguments)
        if action == "pause":  # posted, it would wait for a step that may not end
            self._stepper.background.hurry()
        return self._stepper.background.post(call) if self.is_live else _outcome(call)


def _outcome(call: Callable[[], Any]) -> Future[Any]:
    """A call made here and now: a closed lab has no thread, and goes to other moments only."""
    done: Future[Any] = Future()
    try:
        done.set_result(call())
    except Exception as error:
        done.set_exception(error)
    return done
