"""A session's inputs as lines of Python, with the steps between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from labengine.config import ConfigError, SamplingParams
from labengine.record.wording import request_name, spelled
from labengine.session.images import images_of_rows
from labengine.session.saved.layout import beginning_of, call_lines, in_a_line, plain_literal
from labengine.session.source_text import checked_name

_DEFAULTS = {f.name: f.default for f in fields(SamplingParams)}

TokenText = Callable[[int], str]


def _checked(done: Mapping[str, Any]) -> Mapping[str, Any]:
    if done["do"] not in _CALLS or type(done["step"]) is not int:
        raise ValueError(f"unknown input {done['do']!r}")
    return done


class NoScriptError(ConfigError):
    """Raised for a session that no script of one lab can repeat."""


def refuse_dropped(facts: Mapping[str, Any]) -> None:
    """Raise NoScriptError for a lab that has forgotten its first inputs."""
    if facts.get("are_inputs_dropped"):
        raise NoScriptError("this lab had more inputs than it kept (keep_inputs), so no script can repeat it")


def input_lines(facts: Mapping[str, Any], token_text: TokenText | None) -> Iterator[str]:
    """Yield the lines of each input, and the steps between them."""
    refuse_dropped(facts)
    now = 0
    num_steps = int(facts["num_steps"])
    for done in _together([*map(_checked, facts["inputs"])]):
        yield from _steps(done["step"] - now)
        now = max(now, done["step"])
        yield from _CALLS[done["do"]](done, token_text)
    yield from _steps(num_steps - now)


def _together(inputs: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the inputs, with several answers to one prompt as one input and their number as "n"."""
    first, number = None, 1
    for done in inputs:
        if done["do"] == "add" and done.get("leader_id") is not None and first is not None:
            number += 1
            continue
        if first is not None:
            yield {**first, "n": number}
        first, number = done, 1
    if first is not None:
        yield {**first, "n": number}


def _steps(num_steps: int) -> Iterator[str]:
    if num_steps > 1:
        yield from (f"for _ in range({num_steps}):", "    lab.step()")
    elif num_steps == 1:
        yield "lab.step()"


def _add(done: Mapping[str, Any], token_text: TokenText | None) -> Iterator[str]:
    token_ids = [int(token_id) for token_id in done["token_ids"]]
    if token_text is not None:
        yield f"# {beginning_of(spelled(map(token_text, token_ids[:40])))}"
    sampling = {name: value for name, value in done["sampling"].items() if value != _DEFAULTS[name]}
    extra = {name: done[name] for name in ("cache_salt", "extra_keys", "priority") if done.get(name)}
    if done.get("images"):
        extra["images"] = images_of_rows(done["images"])
    if done["n"] > 1 and "beams" not in sampling:
        extra["n"] = done["n"]
    arguments = [f"{checked_name(name)}={plain_literal(value)}" for name, value in {**sampling, **extra}.items()]
    yield from call_lines("lab.add", [f"token_ids={token_ids}", *arguments])


def _branch(done: Mapping[str, Any], _: TokenText | None) -> Iterator[str]:
    changes = {"seed": done["seed"], "token": done["token_id"]}
    arguments = [f"{name}={int(value)}" for name, value in changes.items() if value is not None]
    yield from call_lines("lab.branch", [f"{int(done['request_id'])}", *arguments])


def _fill_external(done: Mapping[str, Any], _: TokenText | None) -> Iterator[str]:
    yield f"lab.fill_external(token_ids={[int(token_id) for token_id in done['token_ids']]})"


def _moved(done: Mapping[str, Any], _: TokenText | None) -> Iterator[str]:
    name, lab = request_name(int(done["request_id"])), in_a_line(done["lab"])
    where = f"went to {lab}" if done["do"] == "hand_over" else f"came from {lab} with its KV"
    raise NoScriptError(f"{name} {where}: no script of one lab can repeat that")
    yield


def _abort(done: Mapping[str, Any], _: TokenText | None) -> Iterator[str]:
    yield f"lab.abort({int(done['request_id'])})"


def _reset_prefix_cache(_: Mapping[str, Any], __: TokenText | None) -> Iterator[str]:
    yield "lab.reset_prefix_cache()"


def _break_off(done: Mapping[str, Any], _: TokenText | None) -> Iterator[str]:
    arguments = f"{plain_literal(done['reached'])}, {plain_literal(done['reason'])}"
    yield f"break_off(lab, {arguments})  # a step that was interrupted here, and rolled back"


def _break_off_at(done: Mapping[str, Any], _: TokenText | None) -> Iterator[str]:
    arguments = f"{plain_literal(done['kind'])}, {int(done['number'])}, {plain_literal(done['reason'])}"
    yield f"break_off_at(lab, {arguments})  # a step that was broken off at this event, and rolled back"


def _fail(done: Mapping[str, Any], _: TokenText | None) -> Iterator[str]:
    yield f"with suppress(Exception):  # a part raises {in_a_line(done['reason'])} here, and the step is rolled back"
    yield "    lab.step()"


_CALLS: dict[str, Callable[[Mapping[str, Any], TokenText | None], Iterator[str]]] = {
    "add": _add,
    "branch": _branch,
    "abort": _abort,
    "hand_over": _moved,
    "receive": _moved,
    "fill_external": _fill_external,
    "reset_prefix_cache": _reset_prefix_cache,
    "break_off": _break_off,
    "break_off_at": _break_off_at,
    "fail": _fail,
}
