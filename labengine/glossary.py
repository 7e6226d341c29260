"""The words of the screen, each in one sentence: for tooltips, docs/glossary.md and %lab help."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import wrap

TERMS: dict[str, str] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
"""Each term and its sentence."""


def meaning(term: str) -> str | None:
    """Return the sentence of a term, in any case; None for an unknown term."""
    return next((f"{name}: {text}" for name, text in TERMS.items() if name.lower() == term.lower()), None)


def glossary() -> str:
    """Return all terms, each with its sentence."""
    return "\n".join(line for name, text in TERMS.items() for line in _lines(name, text))


def _lines(name: str, text: str) -> list[str]:
    return wrap(f"{name:<16} {text}", 110, subsequent_indent=" " * 17, break_on_hyphens=False)
