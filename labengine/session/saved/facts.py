"""The facts of a session that its events do not hold, in JSON types: enough to write it as code, or to a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from os import PathLike, fspath
from typing import Any, cast

from labengine.config import ConfigError, GroupSpec
from labengine.core.editions import edition
from labengine.core.parts import given_parts
from labengine.driven.driven import Driven
from labengine.engine.draft_model import PROPOSERS
from labengine.events import StepFailed
from labengine.record.files.file import save
from labengine.session.carried_text import class_text
from labengine.session.history.inputs import (
    AbortInput,
    AddInput,
    BranchInput,
    BrokenStep,
    FillInput,
    HandOverInput,
    Input,
    ReceiveInput,
    ResetInput,
)
from labengine.session.session import Session
from labengine.session.settings import LabSettings

Facts = dict[str, Any]
"""A saved session's facts about its lab, by name; JSON values."""


def save_session(session: Session, path: str | PathLike[str]) -> None:
    """Write a session, open or closed, to a file for labengine.open, completely or not at all.

    ConfigError without a recording, or if the file cannot be written.
    """
    if session.timeline is None:
        raise ConfigError("this lab has no recording to save: make the lab with record=True")
    with session.stepper.reading():
        save(path, session.timeline, facts_of(session), session.token_text)


def facts_of(session: Session) -> Facts:
    """Return the facts of a session, all at one instant between two phases."""
    stepper = session.stepper
    with stepper.reading():
        inputs, num_steps = session.inputs.kept, stepper.engine.num_finished_steps
        open_step = stepper.phase if stepper.has_open_step else None
    return {
        "title": session.inspection.title,
        "edition": session.parts.name,
        "settings": _settings(session.settings),
        "parts": _parts(session.settings),
        "runner": None if session.settings.runner is None else class_text(session.settings.runner),
        "num_steps": num_steps,
        "open_step": open_step,
        "num_violations": len(session.inspection.violations),
        "inputs": [_input(done) for done in inputs],
        "are_inputs_dropped": session.inputs.are_dropped,
        "code": session.seams,
    }


def _settings(settings: LabSettings) -> dict[str, Any]:
    """Return Lab's keywords that differ from their defaults, and the model, but no classes."""
    changed = {"model": settings.model, **settings.changed()}
    return {name: _plain(value) for name, value in changed.items() if name not in ("parts", "runner")}


def _plain(value: object) -> object:
    """Return a setting as JSON. An object without a JSON form becomes {"made_by": its class}."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        return [asdict(group) for group in value if isinstance(group, GroupSpec)]
    if type(value) in PROPOSERS.values():
        arguments = asdict(cast(Any, value))
        arguments = {name: list(one) if isinstance(one, tuple) else one for name, one in arguments.items()}
        return {"proposer": type(value).__name__, "arguments": arguments}
    if isinstance(value, Driven):
        patches = [[patch.method, patch.text] for patch in value.patches]
        return {"driven": value.name, "python": value.python, "path": value.path, "patches": patches}
    if type(value).__module__ == "torch":
        return str(value).removeprefix("torch.")
    return {"made_by": f"{type(value).__module__}.{type(value).__qualname__}"}


def _parts(settings: LabSettings) -> dict[str, Any] | None:
    """Return the classes that replace the edition's, with their source."""
    if settings.parts is None:
        return None
    parts, own = given_parts(settings.parts), edition(settings.edition, settings.policy)
    values = {f.name: getattr(parts, f.name) for f in fields(parts)}
    replacing = {name: cls for name, cls in values.items() if isinstance(cls, type) and cls is not getattr(own, name)}
    classes = {name: class_text(cls) for name, cls in replacing.items()}
    return {"name": parts.name, "classes": classes}


def _input(done: Input) -> dict[str, Any]:
    match done:
        case AddInput():
            asked = done.options
            fact: dict[str, Any] = {"do": "add", "token_ids": list(done.token_ids), "sampling": asdict(asked.sampling)}
            fact |= {"cache_salt": asked.cache_salt, "extra_keys": asked.other_keys}
            if asked.priority:
                fact["priority"] = asked.priority
            if asked.images:
                fact["images"] = [list(image) for image in asked.images]
            if done.leader_id is not None:
                fact["leader_id"] = done.leader_id
            if isinstance(done, ReceiveInput):
                fact |= {"do": "receive", "request_id": done.request_id, "lab": done.lab}
            if isinstance(done, BranchInput):
                fact |= {"do": "branch", "request_id": done.request_id, "seed": done.seed, "token_id": done.token_id}
        case FillInput():
            fact = {"do": "fill_external", "token_ids": list(done.token_ids)}
        case AbortInput():
            fact = {"do": "abort", "request_id": done.request_id}
        case HandOverInput():
            fact = {"do": "hand_over", "request_id": done.request_id, "lab": done.lab}
        case ResetInput():
            fact = {"do": "reset_prefix_cache"}
        case BrokenStep(ends_at=(kind, number)):
            fact = {"do": "break_off_at", "kind": kind, "number": number, "reason": done.reason}
        case BrokenStep(failed=StepFailed(), by_runner=False):
            fact = {"do": "fail", "reason": done.reason}
        case BrokenStep():
            fact = {"do": "break_off", "reached": done.reached, "reason": done.reason}
        case _:
            raise AssertionError(f"{done} is an input with no JSON form")
    return {"step": done.num_steps, **fact}
