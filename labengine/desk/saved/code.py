"""A session as a script: the lab as it was made, and every input at the step at which it came."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from textwrap import wrap
from typing import Any

from labengine.config import SamplingParams
from labengine.core.parts import Parts
from labengine.trace.errors import TraceError

WIDTH = 110
_DEFAULTS = {f.name: f.default for f in fields(SamplingParams)}

TokenText = Callable[[int], str]


def to_code(facts: Mapping[str, Any], token_text: TokenText | None = None) -> str:
    """A script that goes the way of a session again. facts: what a file keeps of it (labengine.desk.saved.facts).

    token_text puts the beginning of each prompt beside its token ids. What cannot be written down (a connector of
    yours, a class without text) is named in a comment. TraceError for facts that tell of no session.
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
        yield from _definitions(parts)
    yield from _lab(facts)
    yield from _session(inputs, int(facts["num_steps"]), token_text)
    yield "print(lab)"


def _checked(given: Mapping[str, Any]) -> Mapping[str, Any]:
    if given["do"] not in _CALLS or type(given["step"]) is not int:
        raise ValueError(f"unknown input {given['do']!r}")
    return given


def _imports(facts: Mapping[str, Any], inputs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    classes = [] if facts["parts"] is None else facts["parts"]["classes"].values()
    lines = {str(line) for told in classes for line in told["imports"]}
    if any(given["do"] == "break_off" for given in inputs):
        lines.add("from labengine.desk.time.breaking import break_off")
    yield from sorted(lines | {"import labengine"}, key=lambda line: (line.startswith("from"), line))
    yield ""


def _definitions(parts: Mapping[str, Any]) -> Iterator[str]:
    """The classes that the parts need, each once, bases first."""
    texts = dict.fromkeys(str(text) for told in parts["classes"].values() for text in told["definitions"])
    for text in texts:
        yield from ("", *text.splitlines(), "")
    for told in parts["classes"].values():
        for name in told["missing"]:
            yield f"# {_in_a_line(name)} is needed here; nobody knows where it can be imported from."
    yield ""


def _lab(facts: Mapping[str, Any]) -> Iterator[str]:
    settings, parts = facts["settings"], facts["parts"]
    arguments = [_literal(settings["model"])]
    for name, value in settings.items():
        if isinstance(value, dict):
            yield f"# {_name(name)}=...: made by {_in_a_line(value.get('made_by'))}, which this script cannot make."
        elif name != "model":
            arguments.append(f"{_name(name)}={_setting(value)}")
    if parts is not None:
        given = [] if parts["name"] == Parts.name else [f"name={_literal(parts['name'])}"]
        given += [f"{_name(field)}={_name(told['name'])}" for field, told in parts["classes"].items()]
        arguments.append(f"parts=labengine.Parts({', '.join(given)})")
    yield from _call("lab = labengine.Lab", arguments)
    yield ""


def _setting(value: object) -> str:
    if not isinstance(value, list):
        return _literal(value)
    groups = [
        ", ".join(f"{_name(name)}={_literal(v)}" for name, v in group.items() if v is not None) for group in value
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


def _add(given: Mapping[str, Any], token_text: TokenText | None) -> Iterator[str]:
    token_ids = [int(token_id) for token_id in given["token_ids"]]
    if token_text is not None:
        yield f"# {_beginning(''.join(map(token_text, token_ids[:40])))}"
    sampling = {name: value for name, value in given["sampling"].items() if value != _DEFAULTS[name]}
    extra = {name: given[name] for name in ("cache_salt", "extra_keys") if given[name]}
    arguments = [f"{_name(name)}={_literal(value)}" for name, value in {**sampling, **extra}.items()]
    yield from _call("lab.add", [f"token_ids={token_ids}", *arguments])


def _abort(given: Mapping[str, Any], _: TokenText | None) -> Iterator[str]:
    yield f"lab.abort({int(given['request_id'])})"


def _reset_prefix_cache(_: Mapping[str, Any], __: TokenText | None) -> Iterator[str]:
    yield "lab.reset_prefix_cache()"


def _break_off(given: Mapping[str, Any], _: TokenText | None) -> Iterator[str]:
    arguments = f"{_literal(given['reached'])}, {_literal(given['reason'])}"
    yield f"break_off(lab, {arguments})  # a step that was interrupted here, and taken back"


_CALLS: dict[str, Callable[[Mapping[str, Any], TokenText | None], Iterator[str]]] = {
    "add": _add,
    "abort": _abort,
    "reset_prefix_cache": _reset_prefix_cache,
    "break_off": _break_off,
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
        return _quoted(value)
    if value is None or type(value) in (bool, int, float):
        return repr(value)
    raise TypeError(f"{value!r} is no plain value")


def _quoted(text: str) -> str:
    """In double quotes where Python would not have to escape one."""
    return repr(text) if '"' in text else '"' + repr("'" + text)[2:]


def _name(text: object) -> str:
    if not isinstance(text, str) or not text.isidentifier():
        raise ValueError(f"{text!r} is no name")
    return text


def _in_a_line(text: object) -> str:
    """For a comment: nothing in a text ends it."""
    return "".join(character if character.isprintable() else " " for character in str(text))


def _beginning(text: str) -> str:
    """The beginning of a prompt, as a literal: its line ends stay inside the quotes."""
    return _quoted(text if len(text) <= 70 else f"{text[:70]}...")
