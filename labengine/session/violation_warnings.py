"""A warning for each broken rule that a lab's checks find, so that scripts and cells see it, too."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from labengine.events import EngineStarted, ViolationFound
from labengine.record.hooks import Hooks

_OWN = ("labengine", "threading", "concurrent", "contextlib")
"""Packages whose frames are between a warning and the user's call: ours, and those that call ours."""


class ViolationWarning(UserWarning):
    """Warns of a rule broken while a lab was working; the lab's `violations` hold all broken rules."""


class ViolationWarnings:
    """Warns at once of the first violation of each rule, and again after a reset."""

    def __init__(self, hooks: Hooks) -> None:
        self.is_silent = False
        """True for a lab that shows a known bug."""
        self._rules: set[str] = set()
        hooks.subscribe(self._note, ViolationFound)
        hooks.subscribe(lambda event: self._rules.clear(), EngineStarted)

    def _note(self, event: ViolationFound) -> None:
        if event.rule in self._rules or self.is_silent:
            return
        self._rules.add(event.rule)
        why = "" if event.first_event is None else f" lab.why(event={event.first_event}) explains it;"
        text = f"step {event.step} breaks the rule {event.rule!r}: {event.message}.{why} lab.violations lists them all."
        warnings.warn(text, ViolationWarning, stacklevel=stacklevel_of_caller())


def stacklevel_of_caller() -> int:
    """Return the stacklevel of a warning: frames from the calling function to the first outside labengine."""
    frame: FrameType | None = sys._getframe(1)
    stacklevel = 1
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith(_OWN):
        frame, stacklevel = frame.f_back, stacklevel + 1
    return stacklevel if frame is not None else 1
