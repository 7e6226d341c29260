"""What is known of a session besides its events, in JSON types: enough to write it down as code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from labengine.config import GroupSpec
from labengine.core.parts import Parts
from labengine.events import StepFailed
from labengine.session.reasons.seams import seams_of
from labengine.session.saved.class_text import class_text
from labengine.session.time.inputs import AbortInput, AddInput, BrokenStep, Input, ResetInput

if TYPE_CHECKING:
    from labengine.session.looking import Looking
    from labengine.session.settings import LabSettings

Facts = dict[str, Any]


def facts_of(lab: Looking) -> Facts:
    """The session of a lab, as of one instant between two of its phases."""
    with lab._stepper.turn_to_look():
        inputs, num_steps = lab._inputs.done, lab._stepper.engine.num_finished_steps
        open_step = lab._stepper.phase if lab._stepper.has_open_step else None
    return {
        "title": lab.title,
        "edition": lab.parts.name,
        "settings": _settings(lab.settings),
        "parts": _parts(lab.settings.parts),
        "num_steps": num_steps,
        "open_step": open_step,
        "num_violations": len(lab.violations),
        "inputs": [_input(given) for given in inputs],
        "code": seams_of(lab.parts),
    }


def _settings(settings: LabSettings) -> dict[str, Any]:
    """Lab's keywords as far as they differ from their defaults, and the model; parts are told apart."""
    given = {"model": settings.model, **settings.given()}
    return {name: _plain(value) for name, value in given.items() if name != "parts"}


def _plain(value: object) -> object:
    """A setting as JSON. What has no words there is described: {"made_by": its class}."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        return [asdict(group) for group in value if isinstance(group, GroupSpec)]
    if type(value).__module__ == "torch":
        return str(value).removeprefix("torch.")
    return {"made_by": f"{type(value).__module__}.{type(value).__qualname__}"}


def _parts(parts: Parts | None) -> dict[str, Any] | None:
    """The classes that were given in place of the edition's, with their text."""
    if parts is None:
        return None
    given = {f.name: getattr(parts, f.name) for f in fields(parts)}
    classes = {name: class_text(value) for name, value in given.items() if isinstance(value, type)}
    return {"name": parts.name, "classes": classes}


def _input(given: Input) -> dict[str, Any]:
    match given:
        case AddInput():
            sampling, keys = asdict(given.sampling), dict(given.extra_keys)
            told: dict[str, Any] = {"do": "add", "token_ids": list(given.token_ids), "sampling": sampling}
            told |= {"cache_salt": given.cache_salt, "extra_keys": keys}
        case AbortInput():
            told = {"do": "abort", "request_id": given.request_id}
        case ResetInput():
            told = {"do": "reset_prefix_cache"}
        case BrokenStep(failed=StepFailed(), by_runner=False):
            told = {"do": "fail", "reason": given.reason}
        case BrokenStep():
            told = {"do": "break_off", "reached": given.reached, "reason": given.reason}
        case _:
            raise AssertionError(f"{given} is an input without words")
    return {"step": given.num_steps, **told}
