"""A session as a script: the lab as it was made, and every input at the step at which it came."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from textwrap import wrap
from typing import Any

from labengine.config import SamplingParams
from labengine.core.parts import Parts
from labengine.session.saved.literals import checked_name, quoted
from labengine.session.saved.parts_code import definitions
from labengine.trace.errors import TraceError

WIDTH = 110
_PHASES = ("schedule", "forward", "sample")
_DEFAULTS = {f.name: f.default for f in fields(SamplingParams)}

TokenText = Callable[[int], str]


def to_code(facts: Mapping[str, Any], token_text: TokenText | None = None) -> str:
    """A script that goes the way of a session again. facts: what a file keeps of it (labengine.session.saved.facts).

    token_text puts the beginning of each prompt beside its token ids. What cannot be written down is named in a
    comment: a connector of yours, and a class without text or something that a class uses; for these the script asks
    before anything else. TraceError for facts that tell of no session.
    """
    try:
        return "\n".join(_lines(facts, token_text)) + "\n"
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise TraceError(
            f"this trace does not tell what its lab was given ({error!r}): there is no code in it"
        ) from None


def _lines(facts: Mapping[str, Any], token_text: TokenText | None) -> Iterator[str]:
    inputs = [_checked(given) for given in facts["inputs"]]
    parts = facts["parts"]
    yield f"# {_in_a_line(facts['title'])}: a session, written down by to_code()."
    yield from _imports(facts, inputs)
    if parts is not None:
        yield from definitions(parts)
    yield from _lab(facts)
    yield from _session(inputs, int(facts["num_steps"]), token_text)
    yield from _open_step(facts.get("open_step"))
    yield "print(lab)"


def _checked(given: Mapping[str, Any]) -> Mapping[str, Any]:
    if given["do"] not in _CALLS or type(given["step"]) is not int:
        raise ValueError(f"unknown input {given['do']!r}")
    return given


def _imports(facts: Mapping[str, Any], inputs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    classes = [] if facts["parts"] is None else facts["parts"]["classes"].values()
    lines = {str(line) for told in classes for line in told["imports"]}
    if any(given["do"] == "break_off" for given in inputs):
        lines.add("from labengine.scripts import break_off")
    if any(given["do"] == "fail" for given in inputs):
        lines.add("from contextlib import suppress")
    yield from sorted(lines | {"import labengine"}, key=_place)
    yield ""


def _place(line: str) -> tuple[bool, bool, str]:
    """What concerns the whole file first, then whole modules, then names."""
    return not line.startswith("from __future__"), line.startswith("from"), line


def _lab(facts: Mapping[str, Any]) -> Iterator[str]:
    settings, parts = facts["settings"], facts["parts"]
    arguments = [_literal(settings["model"])]
    for name, value in settings.items():
        if isinstance(value, dict):
            made_by = _in_a_line(value.get("made_by"))
            yield f"# {checked_name(name)}=...: made by {made_by}, which this script cannot make."
        elif name != "model":
            arguments.append(f"{checked_name(name)}={_setting(value)}")
    if parts is not None:
        given = [] if parts["name"] == Parts.name else [f"name={_literal(parts['name'])}"]
        given += [f"{checked_name(field)}={checked_name(told['name'])}" for field, told in parts["classes"].items()]
        arguments.append(f"parts=labengine.Parts({', '.join(given)})")
    yield from _call("lab = labengine.Lab", arguments)
    yield ""


def _setting(value: object) -> str:
    if not isinstance(value, list):
        return _literal(value)
    groups = [
        ", ".join(f"{checked_name(name)}={_literal(v)}" for name, v in group.items() if v is not None)
        for group in value
    ]
    return f"[{', '.join(f'labengine.GroupSpec({group})' for group in groups)}]"


def _session(inputs: Sequence[Mapping[str, Any]], num_steps: int, token_text: TokenText | None) -> Iterator[str]:
    now = 0
    for given in inputs:
        yield from _steps(given["step"] - now)
        now = max(now, given["step"])
        yield from _CALLS[given["do"]](given, token_text)
    yield from _steps(num_steps - now)


def _steps(num_steps: int) -> Iterator[str]:
    if num_steps > 1:
        yield from (f"for _ in range({num_steps}):", "    lab.step()")
    elif num_steps == 1:
        yield "lab.step()"


def _open_step(reached: str | None) -> Iterator[str]:
    """The phases of a step that was left open."""
    for phase in _PHASES[: _PHASES.index(reached) + 1] if reached is not None else ():
        yield f"lab.next_phase()  # {phase}"


def _add(given: Mapping[str, Any], token_text: TokenText | None) -> Iterator[str]:
    token_ids = [int(token_id) for token_id in given["token_ids"]]
    if token_text is not None:
        yield f"# {_beginning(''.join(map(token_text, token_ids[:40])))}"
    sampling = {name: value for name, value in given["sampling"].items() if value != _DEFAULTS[name]}
    extra = {name: given[name] for name in ("cache_salt", "extra_keys") if given[name]}
    arguments = [f"{checked_name(name)}={_literal(value)}" for name, value in {**sampling, **extra}.items()]
    yield from _call("lab.add", [f"token_ids={token_ids}", *arguments])


def _abort(given: Mapping[str, Any], _: TokenText | None) -> Iterator[str]:
    yield f"lab.abort({int(given['request_id'])})"


def _reset_prefix_cache(_: Mapping[str, Any], __: TokenText | None) -> Iterator[str]:
    yield "lab.reset_prefix_cache()"


def _break_off(given: Mapping[str, Any], _: TokenText | None) -> Iterator[str]:
    arguments = f"{_literal(given['reached'])}, {_literal(given['reason'])}"
    yield f"break_off(lab, {arguments})  # a step that was interrupted here, and taken back"


def _fail(given: Mapping[str, Any], _: TokenText | None) -> Iterator[str]:
    yield f"with suppress(Exception):  # a part raises {_in_a_line(given['reason'])} here, and the step is taken back"
    yield "    lab.step()"


_CALLS: dict[str, Callable[[Mapping[str, Any], TokenText | None], Iterator[str]]] = {
    "add": _add,
    "abort": _abort,
    "reset_prefix_cache": _reset_prefix_cache,
    "break_off": _break_off,
    "fail": _fail,
}


def _call(function: str, arguments: Sequence[str]) -> Iterator[str]:
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= WIDTH:
        yield line
        return
    yield f"{function}("
    for argument in arguments:
        yield from (f"    {line}" for line in _wrapped(f"{argument},"))
    yield ")"


def _wrapped(argument: str) -> list[str]:
    """A long list of numbers over several lines; a text is never broken."""
    if len(argument) <= WIDTH or not argument.endswith("],") or '"' in argument or "'" in argument:
        return [argument]
    opening, numbers = argument.removesuffix("],").split("[", 1)
    return [f"{opening}[", *(f"    {line}" for line in wrap(f"{numbers},", WIDTH - 8)), "],"]


def _literal(value: object) -> str:
    """A plain value as Python writes it: nothing that a file says becomes more than that."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_literal(k)}: {_literal(v)}' for k, v in value.items())}}}"
    if type(value) is str:
        return quoted(value)
    if value is None or type(value) in (bool, int, float):
        return repr(value)
    raise TypeError(f"{value!r} is no plain value")


def _in_a_line(text: object) -> str:
    """For a comment: nothing in a text ends it."""
    return "".join(character if character.isprintable() else " " for character in str(text))


def _beginning(text: str) -> str:
    """The beginning of a prompt, as a literal: its line ends stay inside the quotes."""
    return quoted(text if len(text) <= 70 else f"{text[:70]}...")
