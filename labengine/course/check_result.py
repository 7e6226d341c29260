"""The result of a check: passed, wrong or blank, with sentences, a table and pictures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from textwrap import fill
from typing import Literal

State = Literal["passed", "wrong", "blank"]

_WIDTH = 100
_SIGNS = {"passed": "✓", "wrong": "✗", "blank": "…"}
BOX = "border-left:3px solid {};padding:2px 0 2px 12px;margin:4px 0;color:inherit;background:none"
"""Style of a box that reads well on light and dark backgrounds: only its edge is colored."""
EDGES = {"passed": "#009E73", "wrong": "#D55E00", "blank": "#888888"}


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table of texts; the first row is the header."""

    rows: Sequence[Sequence[str]]

    def __str__(self) -> str:
        widths = [max(map(len, cells)) for cells in zip(*self.rows, strict=True)]
        lines = (zip(row, widths, strict=True) for row in self.rows)
        return "\n".join("  ".join(cell.ljust(width) for cell, width in line).rstrip() for line in lines)

    def html(self) -> str:
        """Return the table as HTML, escaped."""
        head, *others = self.rows
        style = 'style="text-align:left;color:inherit;background:none"'
        top = "".join(f"<th {style}>{escape(cell)}</th>" for cell in head)
        body = "".join("<tr>" + "".join(f"<td {style}>{escape(cell)}</td>" for cell in row) + "</tr>" for row in others)
        return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


@dataclass(frozen=True, slots=True, repr=False)
class CheckResult:
    """The result of a check. True if the exercise is passed.

    lines: sentences. table: inputs and outputs, or runs. pictures: (title, SVG) of the moment that the lines describe.
    """

    state: State
    lines: tuple[str, ...]
    table: TextTable | None = None
    pictures: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return self.state == "passed"

    @property
    def text(self) -> str:
        """The sentences, on one line."""
        return " ".join(self.lines)

    def __repr__(self) -> str:
        first, *others = (fill(line, _WIDTH, break_on_hyphens=False, break_long_words=False) for line in self.lines)
        parts = [f"{_SIGNS[self.state]} {first}", *others]
        return "\n".join(parts if self.table is None else [*parts, "", str(self.table)])

    def _repr_html_(self) -> str:
        first, *others = map(marked, self.lines)
        parts = [f"<p><b>{_SIGNS[self.state]}</b> {first}</p>", *(f"<p>{line}</p>" for line in others)]
        if self.table is not None:
            parts.append(self.table.html())
        parts += [f"<p>{escape(title)}</p><div>{svg}</div>" for title, svg in self.pictures]
        return boxed("".join(parts), EDGES[self.state])


def boxed(html: str, edge: str) -> str:
    """Wrap HTML in a box with an edge of this color."""
    return f'<div style="{BOX.format(edge)}">{html}</div>'


def marked(text: str) -> str:
    """Convert plain text to HTML: escape it, and mark `code` between backticks and *emphasis* between stars."""
    parts = re.split(r"`([^`]+)`", escape(text))
    return "".join(
        f"<code>{part}</code>" if place % 2 else re.sub(r"\*(\w[^*]*)\*", r"<em>\1</em>", part)
        for place, part in enumerate(parts)
    )


def blank(*lines: str) -> CheckResult:
    """Return the result for an answer that is not written yet."""
    return CheckResult("blank", lines)


def wrong(*lines: str, table: TextTable | None = None, pictures: Sequence[tuple[str, str]] = ()) -> CheckResult:
    """Return the result for a wrong answer, without empty lines."""
    return CheckResult("wrong", tuple(filter(None, lines)), table, tuple(pictures))


def passed(*lines: str, table: TextTable | None = None) -> CheckResult:
    """Return the result for a right answer."""
    return CheckResult("passed", tuple(filter(None, lines)), table)
