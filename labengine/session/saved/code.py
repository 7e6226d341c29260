"""A session as a script: it makes the lab, and repeats every input at its step."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from textwrap import wrap
from typing import Any

from labengine.config import ConfigError, SamplingParams
from labengine.core.parts import Parts
from labengine.record.files.parsing import TraceError
from labengine.record.wording import hidden_character, readable, spelled
from labengine.session.source_text import checked_import, checked_literal, checked_name, quoted

WIDTH = 110
_FUNCTIONS = ("break_off", "break_off_at", "cost", "decisions", "ending_of", "ends_soon", "fork", "rewind")
"""Functions of labengine.scripts."""
_PHASES = ("schedule", "forward", "sample")
_DEFAULTS = {f.name: f.default for f in fields(SamplingParams)}

TokenText = Callable[[int], str]


@dataclass(frozen=True)
class External:
    """Python that makes a session's external tier. text: the class or the function that it needs, as class_text."""

    code: str
    imports: tuple[str, ...] = ()
    text: Mapping[str, Any] | None = None


def to_code(
    facts: Mapping[str, Any],
    token_text: TokenText | None = None,
    body: Sequence[str] | None = None,
    external: External | None = None,
) -> str:
    """Return a script that repeats a session. facts: see labengine.session.saved.facts.

    token_text puts the beginning of each prompt beside its token ids. What has no source is named in a comment: a
    connector of the user's, a class without source, or a name that a class uses; the script checks for these before
    anything else. body: lines in place of the inputs, with functions of labengine.scripts; external: what makes the
    tier, where it is no setting. TraceError for facts of no session, ConfigError for code in which something is hidden.
    """
    try:
        lines = list(_lines(facts, token_text, body, external))
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise TraceError(
            f"this trace does not tell what its lab was given ({error!r}): there is no code in it"
        ) from None
    return _source("\n".join(lines) + "\n")


def _lines(
    facts: Mapping[str, Any], token_text: TokenText | None, body: Sequence[str] | None, external: External | None
) -> Iterator[str]:
    lines = [*_inputs(facts, token_text)] if body is None else body
    yield f"# {_in_a_line(facts['title'])}: a session, written down by to_code()."
    yield from _imports(facts, lines, external)
    if classes := _classes(facts, external):
        yield from _definitions(classes)
    comments, arguments = _lab(facts, external)
    if facts["parts"] is not None:
        arguments.append(f"parts={_parts(facts['parts'])}")
    yield from (*comments, *_call("lab = labengine.Lab", arguments), "")
    yield from lines
    yield from _open_step(facts.get("open_step"))
    yield "print(lab)"


def to_test(
    facts: Mapping[str, Any],
    assertions: Sequence[str],
    *,
    name: str,
    says: str,
    external: External | None = None,
    body: Sequence[str] | None = None,
) -> str:
    """Return a file for pytest: a test that repeats a session and then asserts.

    It is red with the session's parts, and green where PARTS is None; or red with a connector, and green with one that
    is right. facts: see labengine.session.saved.facts. assertions: lines of Python on `lab`. says: the file's first
    sentence. external and body: as in to_code. ConfigError for a tier that the test cannot make: without it the test
    would be green on a broken one.
    """
    comments, arguments = _lab(facts, external)
    if comments:
        raise ConfigError(
            f"a test cannot carry {'; '.join(comment.removeprefix('# ') for comment in comments)} "
            "labengine.find(YourConnector).to_test() carries a connector's class"
        )
    parts = "None" if facts["parts"] is None else _parts(facts["parts"])
    body = [*(_inputs(facts, None) if body is None else body), *assertions]
    lines = [
        f'"""{_in_a_line(says).replace(chr(92), "").replace(chr(34), chr(39))}"""',
        "",
        *_imports(facts, body, external),
        *(_definitions(classes) if (classes := _classes(facts, external)) else ()),
        "# With PARTS = None, the production classes, the test is green."
        if facts["parts"] is not None or external is None or external.text is None
        else f"# The test is green when {checked_name(external.text['name'])} is right.",
        f"PARTS = {parts}",
        "",
        "",
        f"def test_{name}():",
        *(f"    {line}" for line in _call("with labengine.Lab", [*arguments, "parts=PARTS"], " as lab:")),
        *(f"        {line}" for line in body),
    ]
    return _source("\n".join(lines) + "\n")


def to_definitions(
    facts: Mapping[str, Any], body: Sequence[str], external: External | None = None
) -> tuple[str, list[str]]:
    """Return Python that imports what the body needs and defines PARTS, and Lab's arguments without the parts."""
    comments, arguments = _lab(facts, external)
    parts = "None" if facts["parts"] is None else _parts(facts["parts"])
    classes = _classes(facts, external)
    definitions = _definitions(classes) if classes else ()
    lines = [*_imports(facts, body, external), *definitions, *comments, f"PARTS = {parts}"]
    return _source("\n".join(lines)), arguments


def _checked(done: Mapping[str, Any]) -> Mapping[str, Any]:
    if done["do"] not in _CALLS or type(done["step"]) is not int:
        raise ValueError(f"unknown input {done['do']!r}")
    return done


def _imports(facts: Mapping[str, Any], body: Sequence[str], external: External | None) -> Iterator[str]:
    lines = {checked_import(line) for cls in _classes(facts, external) for line in cls["imports"]}
    lines |= set() if external is None else {*external.imports}
    used = [name for name in _FUNCTIONS if any(f"{name}(" in line for line in body if not line.startswith("#"))]
    lines |= {f"from labengine.scripts import {', '.join(used)}"} if used else set()
    if any(line.startswith("with suppress(") for line in body):
        lines.add("from contextlib import suppress")
    yield from sorted(lines | {"import labengine"}, key=_place)
    yield ""


def _classes(facts: Mapping[str, Any], external: External | None) -> list[Mapping[str, Any]]:
    """Return the classes of the parts, the runner's, and what makes the tier."""
    parts, runner = facts["parts"], facts.get("runner")
    classes = [] if parts is None else list(parts["classes"].values())
    return [*classes, *(one for one in (runner, external and external.text) if one is not None)]


def _place(line: str) -> tuple[bool, bool, str]:
    """Sort lines about the whole file first, then those that import modules, then names."""
    return not line.startswith("from __future__"), line.startswith("from"), line


def _lab(facts: Mapping[str, Any], external: External | None) -> tuple[list[str], list[str]]:
    """Return comments on what the script cannot make, and Lab's arguments without the parts."""
    settings = facts["settings"]
    comments, arguments = [], [_literal(settings["model"])]
    for name, value in settings.items():
        if name == "external" and external is not None:
            arguments.append(f"external={external.code}")
        elif isinstance(value, dict):
            made_by = _in_a_line(value.get("made_by"))
            comments.append(f"# {checked_name(name)}=...: made by {made_by}, which this script cannot make.")
        elif name != "model":
            arguments.append(f"{checked_name(name)}={_setting(value)}")
    if (runner := facts.get("runner")) is not None:
        arguments.append(f"runner={checked_name(runner['name'])}")
    return comments, arguments


def _parts(parts: Mapping[str, Any]) -> str:
    overrides = [] if parts["name"] == Parts.name else [f"name={_literal(parts['name'])}"]
    overrides += [f"{checked_name(field)}={checked_name(cls['name'])}" for field, cls in parts["classes"].items()]
    return f"labengine.Parts({', '.join(overrides)})"


def _setting(value: object) -> str:
    if not isinstance(value, list):
        return _literal(value)
    groups = [
        ", ".join(f"{checked_name(name)}={_literal(v)}" for name, v in group.items() if v is not None)
        for group in value
    ]
    return f"[{', '.join(f'labengine.GroupSpec({group})' for group in groups)}]"


def _inputs(facts: Mapping[str, Any], token_text: TokenText | None) -> Iterator[str]:
    """Yield a line or more for each input, and the steps between them."""
    if facts.get("are_inputs_dropped"):
        raise ConfigError("this lab had more inputs than it kept (keep_inputs): no script can repeat it")
    now = 0
    num_steps = int(facts["num_steps"])
    for done in _together([*map(_checked, facts["inputs"])]):
        yield from _steps(done["step"] - now)
        now = max(now, done["step"])
        yield from _CALLS[done["do"]](done, token_text)
    yield from _steps(num_steps - now)


def _together(inputs: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the inputs, several answers to one prompt as one: the first has their number, "n"."""
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


def _open_step(reached: str | None) -> Iterator[str]:
    """Yield the phases of a step that was left open."""
    for phase in _PHASES[: _PHASES.index(reached) + 1] if reached is not None else ():
        yield f"lab.next_phase()  # {phase}"


def _add(done: Mapping[str, Any], token_text: TokenText | None) -> Iterator[str]:
    token_ids = [int(token_id) for token_id in done["token_ids"]]
    if token_text is not None:
        yield f"# {_beginning(spelled(map(token_text, token_ids[:40])))}"
    sampling = {name: value for name, value in done["sampling"].items() if value != _DEFAULTS[name]}
    extra = {name: done[name] for name in ("cache_salt", "extra_keys") if done[name]}
    if done.get("n", 1) > 1:
        extra["n"] = int(done["n"])
    arguments = [f"{checked_name(name)}={_literal(value)}" for name, value in {**sampling, **extra}.items()]
    yield from _call("lab.add", [f"token_ids={token_ids}", *arguments])


def _branch(done: Mapping[str, Any], _: TokenText | None) -> Iterator[str]:
    changes = {"seed": done["seed"], "token": done["token_id"]}
    arguments = [f"{name}={int(value)}" for name, value in changes.items() if value is not None]
    yield from _call("lab.branch", [f"{int(done['request_id'])}", *arguments])


def _fill_external(done: Mapping[str, Any], _: TokenText | None) -> Iterator[str]:
    yield f"lab.fill_external(token_ids={[int(token_id) for token_id in done['token_ids']]})"


def _abort(done: Mapping[str, Any], _: TokenText | None) -> Iterator[str]:
    yield f"lab.abort({int(done['request_id'])})"


def _reset_prefix_cache(_: Mapping[str, Any], __: TokenText | None) -> Iterator[str]:
    yield "lab.reset_prefix_cache()"


def _break_off(done: Mapping[str, Any], _: TokenText | None) -> Iterator[str]:
    arguments = f"{_literal(done['reached'])}, {_literal(done['reason'])}"
    yield f"break_off(lab, {arguments})  # a step that was interrupted here, and rolled back"


def _break_off_at(done: Mapping[str, Any], _: TokenText | None) -> Iterator[str]:
    arguments = f"{_literal(done['kind'])}, {int(done['number'])}, {_literal(done['reason'])}"
    yield f"break_off_at(lab, {arguments})  # a step that was broken off at this event, and rolled back"


def _fail(done: Mapping[str, Any], _: TokenText | None) -> Iterator[str]:
    yield f"with suppress(Exception):  # a part raises {_in_a_line(done['reason'])} here, and the step is rolled back"
    yield "    lab.step()"


_CALLS: dict[str, Callable[[Mapping[str, Any], TokenText | None], Iterator[str]]] = {
    "add": _add,
    "branch": _branch,
    "abort": _abort,
    "fill_external": _fill_external,
    "reset_prefix_cache": _reset_prefix_cache,
    "break_off": _break_off,
    "break_off_at": _break_off_at,
    "fail": _fail,
}


def _call(function: str, arguments: Sequence[str], ending: str = "") -> Iterator[str]:
    line = f"{function}({', '.join(arguments)}){ending}"
    if len(line) <= WIDTH:
        yield line
        return
    yield f"{function}("
    for argument in arguments:
        yield from (f"    {line}" for line in _wrapped(f"{argument},"))
    yield f"){ending}"


def _wrapped(argument: str) -> list[str]:
    """Wrap a long list of numbers over several lines; a text is never broken."""
    if len(argument) <= WIDTH or not argument.endswith("],") or '"' in argument or "'" in argument:
        return [argument]
    opening, numbers = argument.removesuffix("],").split("[", 1)
    return [f"{opening}[", *(f"    {line}" for line in wrap(f"{numbers},", WIDTH - 8)), "],"]


def _literal(value: object) -> str:
    """Return a plain value from a file as a literal; anything else is refused."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_literal(k)}: {_literal(v)}' for k, v in value.items())}}}"
    if type(value) is str:
        return quoted(value)
    if value is None or type(value) in (bool, int, float):
        return repr(value)
    raise TypeError(f"{value!r} is no plain value")


def _in_a_line(text: object) -> str:
    """Return a text for a comment: nothing in it ends the line, or names an encoding, as a file's first lines can."""
    return re.sub("coding(?=[:=])", "coding ", readable(str(text), 400))


def _beginning(text: str) -> str:
    """Return the beginning of a prompt as a literal: line ends stay inside the quotes."""
    return quoted(text if len(text) <= 70 else f"{text[:70]}...")


# -- parts -------------------------------------------------------------------------------------------------------------


def _definitions(classes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what classes need: a check for missing names, then values, then classes, each once, bases first."""
    constants = _constants(classes)
    unclear = [name for name, texts in constants.items() if len(texts) > 1]
    yield from _checks(dict.fromkeys(checked_name(name) for name in [*unclear, *_all(classes, "missing")]))
    yield from (f"{name} = {text}" for name, (text, *others) in constants.items() if not others)
    for text in _all(classes, "definitions"):
        yield from ("", *text.split("\n"), "")
    yield ""


def _source(text: str) -> str:
    """Return Python as it is. Raises TraceError where a character in it hides others from a reader of the script."""
    if hidden := hidden_character(text):
        raise TraceError(f"this session has {hidden} in the source of a class, which hides text: write an escape")
    return text


def _all(classes: Sequence[Mapping[str, Any]], what: str) -> dict[str, None]:
    return dict.fromkeys(str(text) for cls in classes for text in cls[what])


def _constants(classes: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the values of each name: in classes of different modules it may have different ones."""
    values: dict[str, list[str]] = {}
    for cls in classes:
        for name, text in cls.get("constants", {}).items():
            texts = values.setdefault(checked_name(name), [])
            if (written := checked_literal(text)) not in texts:
                texts.append(written)
    return values


def _checks(names: Iterable[str]) -> Iterator[str]:
    """Yield a check for names that the script lacks: an error at its top is better than one in some step."""
    names = list(names)
    for name in names:
        yield f"# {name} is needed here; it is not known where it can be imported from: define it above the next line."
    if names:
        yield f"if missing := {{{', '.join(map(quoted, names))}}} - globals().keys():"
        yield "    raise NameError(f\"define {', '.join(sorted(missing))} above: it could not be saved\")"
        yield ""
