"""Parts of a text that a reader does not see: characters that draw nothing, and gaps that hide what follows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

GAP_COLUMNS, GAP_LINES = 80, 40
"""Blanks, and empty lines, enough to fill a screen. A tab counts as eight blanks."""

_EMOJI = "[\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u27bf\u2900-\u2bff\u3030\U0001f000-\U0001faff]"
_JOINING = "[\u0620-\u0dff]"
"""Arabic to Sinhala, where a joiner between two letters changes their shape."""
_DRAWN = f"{_EMOJI}[\ufe0e\ufe0f]?(?:\u200d(?={_EMOJI}))?|{_JOINING}[\u200c\u200d](?={_JOINING})"
_SIGNS = {"\n": "⏎", "\r": "⏎", "\t": "⇥"}


def _ranges() -> Iterator[str]:
    """Yield the ranges of hidden_text.json, which the browser reads too, in the syntax of a regular expression."""
    table = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    for one in " ".join(table.values()).split():
        first, _, last = one.partition("-")
        yield f"{chr(int(first, 16))}-{chr(int(last or first, 16))}"


_HIDDEN = re.compile(f"({_DRAWN})|[{''.join(_ranges())}]")
"""A character that draws nothing, or, as group 1, an emoji or letter with the selectors and joiners that shape it."""
_GAP = re.compile(rf"[ \t]{{10,}}|\n(?:[ \t]*\n){{{GAP_LINES},}}")


def hiding(code: str) -> str:
    """Return the first thing in source code that hides text, as 'U+202E' or '200 blanks', with its line; else ''."""
    found = (one for one in _HIDDEN.finditer(code) if not one[1] and one[0] not in "\n\t")
    if one := next(found, None):
        return f"U+{ord(one[0]):04X} in {_line_of(one)}"
    gaps = (one for one in _GAP.finditer(code.rstrip()) if _gap(one))
    return f"{_gap(one)} in {_line_of(one)}" if (one := next(gaps, None)) else ""


def with_signs(text: str, kept: str = "") -> str:
    """Return a text with signs or dots for invisible characters, and long gaps marked. kept: characters to keep."""
    if text.isascii() and text.isprintable() and " " * GAP_COLUMNS not in text:
        return text
    text = _HIDDEN.sub(lambda one: one[1] or (one[0] if one[0] in kept else _SIGNS.get(one[0], "·")), text)
    body = text.rstrip(" \t\n")
    return _GAP.sub(_marked, body) + text[len(body) :]


def with_escapes(literal: str) -> str:
    """Return a text's literal with escapes for everything that hides text."""
    literal = _HIDDEN.sub(lambda one: one[1] or one[0].encode("unicode_escape").decode(), literal)
    return _GAP.sub(lambda one: one[0].replace(" ", r"\x20") if _gap(one) else one[0], literal)


def _gap(found: re.Match[str]) -> str:
    """Return '200 blanks' or '3,000 empty lines' for a gap that fills a screen; empty for a smaller one."""
    run = found[0]
    if run[0] == "\n":
        return f"{run.count(chr(10)) - 1:,} empty lines"
    is_inside = found.string[found.end() : found.end() + 1] not in ("", "\n")
    return f"{len(run):,} blanks" if is_inside and len(run) + 7 * run.count("\t") >= GAP_COLUMNS else ""


def _marked(found: re.Match[str]) -> str:
    """Return the text for a gap. Empty lines stay, each with its sign, so that lines keep their numbers."""
    if not (words := _gap(found)):
        return found[0]
    others = found[0].count("\n") - 2
    return f"\n⟨{words}⟩\n" + "⏎\n" * others if found[0][0] == "\n" else f"⟨{words}⟩"


def _line_of(found: re.Match[str]) -> str:
    text, start = found.string, found.start()
    return ascii(" ".join(text[text.rfind("\n", 0, start) + 1 :].split("\n", 1)[0].split())[:60])
