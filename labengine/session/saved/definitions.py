"""The beginning of a session's script: imports, definitions of classes, and Lab's arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from labengine.core.parts import Parts
from labengine.engine.draft_model import PROPOSERS
from labengine.record.files.parsing import TraceError
from labengine.record.hidden_text import hiding
from labengine.session.saved.layout import in_a_line, plain_literal
from labengine.session.source_text import checked_import, checked_literal, checked_name, quoted, tree_of

FUNCTIONS = ("break_off", "break_off_at", "cost", "decisions", "ending_of", "ends_soon", "fork", "rewind")
"""Functions of labengine.scripts."""


@dataclass(frozen=True)
class External:
    """Python that makes a session's external tier. text: the class or function that it needs, as by class_text."""

    code: str
    imports: tuple[str, ...] = ()
    text: Mapping[str, Any] | None = None


def texts_of(facts: Mapping[str, Any], external: External | None) -> list[Mapping[str, Any]]:
    """Return the texts of the parts' classes, the runner, and the tier."""
    parts, runner = facts["parts"], facts.get("runner")
    texts = [] if parts is None else list(parts["classes"].values())
    return [*texts, *(one for one in (runner, external and external.text) if one is not None)]


def import_lines(
    texts: Sequence[Mapping[str, Any]], body: Sequence[str], external: External | None = None
) -> Iterator[str]:
    """Yield the imports that the texts, the body and the tier need, and an empty line."""
    lines = {checked_import(line) for text in texts for line in text["imports"]}
    lines |= set() if external is None else {*external.imports}
    used = [name for name in FUNCTIONS if any(f"{name}(" in line for line in body if not line.startswith("#"))]
    lines |= {f"from labengine.scripts import {', '.join(used)}"} if used else set()
    if any(line.startswith("with suppress(") for line in body):
        lines.add("from contextlib import suppress")
    yield from sorted(lines | {"import labengine"}, key=_place)
    yield ""


def _place(line: str) -> tuple[bool, bool, str]:
    """Return a sort key: __future__ first, then imports of modules, then imports of names."""
    return not line.startswith("from __future__"), line.startswith("from"), line


def lab_arguments(facts: Mapping[str, Any], external: External | None) -> tuple[list[str], list[str]]:
    """Return Lab's arguments without the parts, after comments on those that the script cannot make."""
    settings = facts["settings"]
    comments, arguments = [], _model(settings["model"])
    for name, value in settings.items():
        if name == "model":
            continue
        if name == "external" and external is not None:
            arguments.append(f"external={external.code}")
        elif isinstance(value, dict) and "proposer" in value:
            arguments.append(f"{checked_name(name)}={_proposer(value['proposer'], value['arguments'])}")
        elif isinstance(value, dict):
            made_by = in_a_line(value.get("made_by"))
            comments.append(f"# {checked_name(name)}=...: made by {made_by}, which this script cannot make.")
        else:
            arguments.append(f"{checked_name(name)}={_setting(value)}")
    if (runner := facts.get("runner")) is not None:
        arguments.append(f"runner={checked_name(runner['name'])}")
    return comments, arguments


def maker_of(facts: Mapping[str, Any]) -> str:
    """Return the function that makes the lab."""
    return "labengine.drive" if isinstance(facts["settings"]["model"], dict) else "labengine.Lab"


def _model(model: object) -> list[str]:
    """Return the arguments that name a model, or a driven engine."""
    if not isinstance(model, dict):
        return [plain_literal(model)]
    named = [f"{name}={plain_literal(model[name])}" for name in ("python", "path") if model[name] is not None]
    patches = "".join(_patch(*patch) for patch in model["patches"])
    return [plain_literal(model["driven"]), *named, *([f"patches=[{patches}\n    ]"] if patches else [])]


def _patch(method: str, text: str) -> str:
    """Return a patch of a driven engine, its text line by line."""
    lines = "".join(f"\n            {plain_literal(line)}" for line in text.splitlines(keepends=True) or [""])
    return f"\n        labengine.Patch(\n            {plain_literal(method)},{lines},\n        ),"


def parts_text(parts: Mapping[str, Any] | None) -> str:
    """Return the parts as Python; "None" for those of the edition."""
    if parts is None:
        return "None"
    overrides = [] if parts["name"] == Parts.name else [f"name={plain_literal(parts['name'])}"]
    overrides += [f"{checked_name(field)}={checked_name(cls['name'])}" for field, cls in parts["classes"].items()]
    return f"labengine.Parts({', '.join(overrides)})"


def _setting(value: object) -> str:
    if not isinstance(value, list):
        return plain_literal(value)
    groups = [
        ", ".join(f"{checked_name(name)}={plain_literal(v)}" for name, v in group.items() if v is not None)
        for group in value
    ]
    return f"[{', '.join(f'labengine.GroupSpec({group})' for group in groups)}]"


def _proposer(name: str, arguments: Mapping[str, Any]) -> str:
    fields = (
        f"{checked_name(key)}={[int(token) for token in value] if isinstance(value, list) else plain_literal(value)}"
        for key, value in arguments.items()
    )
    return f"labengine.{PROPOSERS[name].__name__}({', '.join(fields)})"


def definition_lines(texts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the texts' definitions, each once: a check for missing names, values, then classes and functions.

    Bases come first.
    """
    if not texts:
        return
    yield from _checks(missing_names(texts))
    yield from (f"{name} = {text}" for name, (text, *others) in _constants(texts).items() if not others)
    for text in _all(texts, "definitions"):
        yield from ("", *text.split("\n"), "")
    yield ""


def missing_names(texts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names in the texts that a script lacks, or that have different values in two texts."""
    several = [name for name, values in _constants(texts).items() if len(values) > 1]
    defined = [name for text in _all(texts, "definitions") for name in _defined_name(text)]
    several += [name for name in dict.fromkeys(defined) if defined.count(name) > 1]
    return [*dict.fromkeys(checked_name(name) for name in [*several, *_all(texts, "missing")])]


def _defined_name(text: str) -> list[str]:
    """Return the name of the class or function that a text defines; empty for a file's text that is not Python."""
    with suppress(SyntaxError, ValueError):
        defined = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        return [statement.name for statement in tree_of(text).body if isinstance(statement, defined)]
    return []


def checked_source(text: str) -> str:
    """Return Python unchanged. Raises TraceError if a character in it hides text from a reader of the script."""
    if found := hiding(text):
        raise TraceError(f"the source of a class in this session has {found}, which hides text: use an escape")
    return text


def _all(texts: Sequence[Mapping[str, Any]], what: str) -> dict[str, None]:
    return dict.fromkeys(str(one) for text in texts for one in text[what])


def _constants(texts: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the values of each name, which may differ between texts of different modules."""
    values: dict[str, list[str]] = {}
    for text in texts:
        for name, value in text.get("constants", {}).items():
            known = values.setdefault(checked_name(name), [])
            if (written := checked_literal(value)) not in known:
                known.append(written)
    return values


def _checks(names: Sequence[str]) -> Iterator[str]:
    """Yield a check for names that the script lacks, since an error at its top is better than one in some step."""
    for name in names:
        yield f"# {name} is needed here but could not be saved: define it above the next line."
    if names:
        yield f"if missing := {{{', '.join(map(quoted, names))}}} - globals().keys():"
        yield "    raise NameError(f\"define {', '.join(sorted(missing))} above: it could not be saved\")"
        yield ""
