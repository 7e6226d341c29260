"""A warning for each rule that the checks of a lab find broken, so that a script and a cell see it too."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from labengine.events import EngineStarted, ViolationFound
from labengine.record.hooks import Hooks

_OWN = ("labengine", "threading", "concurrent", "contextlib")
"""Modules whose frames stand between a warning and the user's call: ours, and those that call ours."""


class ViolationWarning(UserWarning):
    """A rule was found broken while a lab was working; its `violations` hold all that was found."""


class ViolationWarnings:
    """Warns of the first violation of each rule, at once, and again after a reset."""

    def __init__(self, hooks: Hooks) -> None:
        self.is_silent = False
        """True for a lab that is known to be broken, and is there to show it."""
        self._rules: set[str] = set()
        hooks.subscribe(self._note, ViolationFound)
        hooks.subscribe(lambda event: self._rules.clear(), EngineStarted)

    def _note(self, event: ViolationFound) -> None:
        if event.rule in self._rules or self.is_silent:
            return
        self._rules.add(event.rule)
        why = "" if event.first_event is None else f" lab.why(event={event.first_event}) says why;"
        text = f"step {event.step} breaks the rule {event.rule!r}: {event.message}.{why} lab.violations holds all."
        warnings.warn(text, ViolationWarning, stacklevel=stacklevel_of_caller())


def stacklevel_of_caller() -> int:
    """Return the stacklevel of a warning: frames from the calling function to the first that is not labengine's."""
    frame: FrameType | None = sys._getframe(1)
    stacklevel = 1
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith(_OWN):
        frame, stacklevel = frame.f_back, stacklevel + 1
    return stacklevel if frame is not None else 1
