"""The project's docstrings for the reference: lines of the form "name, name: meaning" become a list."""

from __future__ import annotations

import re
from typing import Any

import griffe

_NAMED = re.compile(r"(?:^|(?<=[.\]?!)] ))((?:[a-z_]\w*)(?:, [a-z_]\w*)*): ", re.MULTILINE)


class NamedLines(griffe.Extension):
    """Rewrites docstrings before they are rendered."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite an object's docstring, if it has one."""
        if obj.docstring is not None:
            obj.docstring.value = as_list(obj.docstring.value, names_of(obj))


def names_of(obj: griffe.Object) -> set[str]:
    """Return the names that a docstring may explain: parameters, and a class's members and parameters."""
    if isinstance(obj, griffe.Function):
        return {one.name for one in obj.parameters}
    made_by = obj.members.get("__init__")
    parameters = names_of(made_by) if isinstance(made_by, griffe.Function) else set()
    return {*obj.members, *parameters}


def as_list(text: str, names: set[str]) -> str:
    """Return the docstring with a list entry for each explanation of known names."""

    def entry(match: re.Match[str]) -> str:
        if not names.issuperset(match[1].split(", ")):
            return match[0]
        return f"\n* `{match[1]}`: "

    paragraphs = [_joined(_NAMED.sub(entry, paragraph)) for paragraph in text.split("\n\n")]
    return "\n\n".join(paragraphs)


def _joined(paragraph: str) -> str:
    """Return a paragraph whose list, if any, follows an empty line and has one line per entry."""
    head, *entries = re.split(r"\n(?=\* `)", "\n" + paragraph)
    lines = [" ".join(entry.split()) for entry in entries]
    return "\n\n".join(filter(None, [head.strip("\n"), "\n".join(lines)]))
