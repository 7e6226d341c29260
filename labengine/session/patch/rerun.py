"""A lab's workload run again on two new labs: on its own parts, and beside them with one override."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from labengine.core.part_methods import class_name, is_custom
from labengine.core.parts import Parts
from labengine.session.compare.comparison import Comparison
from labengine.session.compare.sides import LiveSide
from labengine.session.history.history import History
from labengine.session.patch.override import field_of, lost_overrides, parts_with
from labengine.session.session import Session
from labengine.session.violation_warnings import stacklevel_of_caller

ROLES = ("as it was", "with your override")
"""What is written above the two sides."""


def rerun_beside(
    session: Session, history: History, lab_of: Callable[[Session], LiveSide], override: object, **settings: Any
) -> Comparison:
    """Return a comparison of two new labs that were given a session's inputs from its beginning. See Lab.rerun."""
    kinds = {group.kind for group in session.config.groups}
    parts = parts_with(override, session.parts, kinds)
    _warn_of_lost_overrides(override, session.parts)
    inputs, num_steps = history.past
    with ExitStack() as made:
        left, right = (_side(history, lab_of, one, made, settings) for one in (None, parts))
        left.session.violation_warnings.is_silent = True  # what it does is known from the lab itself
        right.session.violation_warnings.is_silent = session.violation_warnings.is_silent
        names = _names(session.parts, parts)
        title = f"As it was, and with {names[1].removeprefix('+ ')}"
        comparison = Comparison(left, right, names=names, title=title, roles=ROLES)
        made.callback(comparison.close)
        try:
            comparison.repeat(inputs, num_steps)
        except BaseException as error:
            reached = left.session.stepper.engine.num_finished_steps
            error.add_note(f"The rerun was given up after {reached} of {num_steps} steps; this lab is as it was.")
            raise
        made.pop_all()
    return comparison


def _side(
    history: History,
    lab_of: Callable[[Session], LiveSide],
    parts: Parts | None,
    made: ExitStack,
    settings: dict[str, Any],
) -> LiveSide:
    side = lab_of(history.empty_fork(parts, **settings))
    made.callback(side.close)
    return side


def _names(before: Parts, after: Parts) -> tuple[str, str]:
    """Return the names of the sides: "labengine" and "+ touch"."""
    return before.name, after.name.removeprefix(f"{before.name} ")


def _warn_of_lost_overrides(override: object, parts: Parts) -> None:
    """Warn of what a user's class leaves out because it does not derive from the class in use."""
    if not isinstance(override, type) or not is_custom(override):
        return
    in_use = getattr(parts, field_of(override, parts))
    if lost := lost_overrides(override, in_use):
        text = f"{class_name(override)} does not derive from {in_use.__name__}, this lab's own class, and leaves out"
        warnings.warn(f"{text} {', '.join(lost)}", stacklevel=stacklevel_of_caller())
