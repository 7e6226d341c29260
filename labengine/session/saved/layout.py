"""Python laid out in lines: wrapped calls, plain values, and texts for comments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from textwrap import wrap

from labengine.record.wording import readable
from labengine.session.source_text import quoted

WIDTH = 110


def call_lines(function: str, arguments: Sequence[str], ending: str = "") -> Iterator[str]:
    line = f"{function}({', '.join(arguments)}){ending}"
    if len(line) <= WIDTH:
        yield line
        return
    yield f"{function}("
    for argument in arguments:
        yield from (f"    {line}" for line in _wrapped(f"{argument},"))
    yield f"){ending}"


def _wrapped(argument: str) -> list[str]:
    """Wrap a long list of numbers over several lines; a string is never broken."""
    if len(argument) <= WIDTH or not argument.endswith("],") or '"' in argument or "'" in argument:
        return [argument]
    opening, numbers = argument.removesuffix("],").split("[", 1)
    return [f"{opening}[", *(f"    {line}" for line in wrap(f"{numbers},", WIDTH - 8)), "],"]


def plain_literal(value: object) -> str:
    """Return a plain value from a file as a literal. TypeError for anything else."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{plain_literal(k)}: {plain_literal(v)}' for k, v in value.items())}}}"
    if type(value) is tuple and len(value) > 1:
        return f"({', '.join(map(plain_literal, value))})"
    if type(value) is str:
        return quoted(value)
    if value is None or type(value) in (bool, int, float):
        return repr(value)
    raise TypeError(f"{value!r} is not a plain value")


def in_a_line(text: object) -> str:
    """Return a text for a comment, which cannot end the line or, among a file's first lines, name an encoding."""
    return re.sub("coding(?=[:=])", "coding ", readable(str(text), 400))


def beginning_of(text: str) -> str:
    """Return the beginning of a prompt as a literal: line ends stay inside the quotes."""
    return quoted(text if len(text) <= 70 else f"{text[:70]}...")
