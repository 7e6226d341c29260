"""A lab's workload repeated on two new labs side by side: one with its parts, one with an override."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from labengine.config import ConfigError
from labengine.core.editions import edition as edition_named
from labengine.core.part_methods import class_name, is_custom
from labengine.core.parts import Parts, field_of, given_parts
from labengine.driven.driven import Patch
from labengine.driven.model import DrivenModel
from labengine.engine.interrupts import interrupts_deferred
from labengine.session.compare.comparison import Comparison
from labengine.session.compare.sides import LiveSide
from labengine.session.history.history import History
from labengine.session.history.inputs import Input
from labengine.session.origin import Origin
from labengine.session.patch.override import lost_overrides, parts_with
from labengine.session.session import Session
from labengine.session.violation_warnings import stacklevel_of_caller

ROLES = ("as it was", "with your override")
"""The captions above the two sides."""


def rerun_beside(
    session: Session, history: History, lab_of: Callable[[Session], LiveSide], override: object, **settings: Any
) -> Comparison:
    """Return a comparison of two new labs after all of a session's inputs. See Lab.rerun."""
    session.stepper.refuse_if_closed()
    inputs, num_steps = history.past
    origin = _usable_origin(session, inputs, settings)
    if isinstance(session.model, DrivenModel):
        sides = _driven_sides(session.model, override)
    else:
        sides = _sides(session, override, settings)

    def side(changes: dict[str, Any]) -> LiveSide:
        if origin is not None:
            made: LiveSide = origin.make(changes.get("parts", session.parts))
            return made
        return lab_of(history.empty_fork(**settings | changes))

    with ExitStack() as made:
        with interrupts_deferred():
            left, right = (_closed_with(made, side(changes)) for changes in sides.changes)
        left.session.violation_warnings.is_silent = True  # the lab itself has already warned
        right.session.violation_warnings.is_silent = session.violation_warnings.is_silent
        title = f"As it was, and with {sides.names[1].removeprefix('+ ')}"
        comparison = Comparison(left, right, names=sides.names, title=title, roles=ROLES)
        made.callback(comparison.close)
        try:
            if origin is not None:
                comparison.repetition.play(origin.play)
            comparison.repetition.repeat(inputs[origin.num_inputs if origin else 0 :], num_steps)
        except BaseException as error:
            reached = left.session.stepper.engine.num_finished_steps
            error.add_note(f"The rerun failed after {reached} of {num_steps} steps; this lab is unchanged.")
            raise
        made.pop_all()
    return comparison


@dataclass(frozen=True)
class _Sides:
    """Per side, its name ("labengine" and "+ touch"), and the settings in which it differs from the lab."""

    names: tuple[str, str]
    changes: tuple[dict[str, Any], dict[str, Any]]


def _sides(session: Session, override: object, settings: Mapping[str, Any]) -> _Sides:
    """Return the sides of an override of parts. Raises ConfigError for one that cannot work."""
    before = _parts_before(session, settings)
    parts = parts_with(override, before, {group.kind for group in session.config.groups})
    _warn_of_lost_overrides(override, before)
    return _Sides((before.name, parts.name.removeprefix(f"{before.name} ")), ({}, {"parts": parts}))


def _driven_sides(model: DrivenModel, override: object) -> _Sides:
    """Return the sides of patches. Raises ConfigError for anything else, and for a method that the engine lacks."""
    patches = override if isinstance(override, tuple) else (override,)
    if not all(isinstance(patch, Patch) for patch in patches):
        raise ConfigError(
            f"{model.name} is driven, so its own methods are replaced, not labengine's parts: "
            'lab.rerun(labengine.Patch("Class.method", text))'
        )
    driven = model.driven
    for patch in patches:
        driven = driven.patched(replace(patch, method=model.described(patch.method)["method"]))
    before, after = (
        " + ".join([model.name, *(patch.method for patch in one.patches)]) for one in (model.driven, driven)
    )
    return _Sides((before, after.removeprefix(f"{before} ")), ({}, {"driven": driven}))


def _parts_before(session: Session, settings: Mapping[str, Any]) -> Parts:
    """Return the session's parts, or those of another edition and policy, overridden by the settings' parts."""
    own = settings.get("parts")
    before = session.parts
    if settings.keys() & {"edition", "policy"}:
        before = edition_named(
            settings.get("edition", session.settings.edition), settings.get("policy", session.settings.policy)
        )
    return before if own is None else given_parts(own).overriding(before)


def _closed_with(made: ExitStack, side: LiveSide) -> LiveSide:
    made.callback(side.close)
    return side


def _usable_origin(session: Session, inputs: Sequence[Input], settings: dict[str, Any]) -> Origin | None:
    """Return the origin of the lab; None if it was rewound before its end, or if settings change."""
    origin = session.origin
    return None if origin is None or settings or len(inputs) < origin.num_inputs else origin


def _warn_of_lost_overrides(override: object, parts: Parts) -> None:
    """Warn about overrides that a user's class loses because it does not derive from the class in use."""
    if not isinstance(override, type) or not is_custom(override):
        return
    in_use = getattr(parts, field_of(override))
    if lost := lost_overrides(override, in_use):
        text = f"{class_name(override)} does not inherit from {in_use.__name__}, this lab's class, and so loses"
        warnings.warn(f"{text} {', '.join(lost)}", stacklevel=stacklevel_of_caller())
