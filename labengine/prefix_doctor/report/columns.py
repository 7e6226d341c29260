"""Text in a terminal's columns, where a Chinese character takes two and an accent none."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from unicodedata import category, east_asian_width

WIDTH = 100
"""Most columns of a printed line."""


def width_of(text: str) -> int:
    """Return the number of columns that a text takes."""
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if character.isascii():
        return 1
    return 0 if category(character) in ("Mn", "Me", "Cf") else 2 if east_asian_width(character) in "WF" else 1


def padded(text: str, width: int) -> str:
    """Return a text with blanks after it."""
    return text + " " * (width - width_of(text))


def cut(text: str, width: int) -> str:
    """Return a text, or its beginning and an ellipsis if it is wider."""
    if width_of(text) <= width:
        return text
    return text[: sum(end < width for end in accumulate(map(_columns, text)))] + "…"


def cut_before(text: str, width: int) -> str:
    """Return a text, or an ellipsis and its end if it is wider."""
    if width_of(text) <= width:
        return text
    num_kept = sum(end < width for end in accumulate(map(_columns, reversed(text))))
    return "…" + text[len(text) - num_kept :]


def wrapped(text: str, first: str = "", others: str | None = None) -> Iterator[str]:
    """Yield lines of at most WIDTH columns. first, others: what begins the first line, and each other line."""
    indent = " " * width_of(first) if others is None else others
    line, is_empty = first, True
    for word in text.split():
        if not is_empty and width_of(line) + 1 + width_of(word) > WIDTH:
            yield line
            line, is_empty = indent, True
        line, is_empty = f"{line}{'' if is_empty else ' '}{word}", False
        while width_of(line) > WIDTH:
            head = cut(line, WIDTH)[:-1]
            yield head
            line = indent + line[len(head) :]
    if not is_empty:
        yield line


def table(rows: list[tuple[str, ...]], indent: str = "  ") -> Iterator[str]:
    """Yield the lines of a table, its cells aligned to the right."""
    widths = [max(map(width_of, cells)) for cells in zip(*rows, strict=True)]
    for row in rows:
        yield indent + "  ".join(" " * (w - width_of(one)) + one for one, w in zip(row, widths, strict=True))
