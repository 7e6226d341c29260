"""The methods of a driven engine for %lab seams, %lab seam and %%lab patch: found by name, described, replaced."""

from __future__ import annotations

from textwrap import shorten

from IPython.core.error import UsageError

from labengine.config import ConfigError
from labengine.driven.driven import Patch
from labengine.driven.model import DrivenModel
from labengine.lab import Lab

_WIDTH = 76
"""Maximum length of a method's sentence in the list."""


def engine_of(lab: Lab) -> DrivenModel | None:
    """Return the engine that a lab drives; None for a lab on labengine's own engine."""
    model = lab.session.model
    return model if isinstance(model, DrivenModel) else None


def method_lines(lab: Lab, engine: DrivenModel, word: str) -> list[str]:
    """Return a line for each method with this word in its name that decides events, or for any method named by it."""
    deciding = reversed(lab.session.seams.values())  # of the reasons of one method the first is kept
    found = {seam["seam"]: seam for seam in deciding if word.lower() in seam["seam"].lower()}
    if not found and word:
        return [_described_line(engine, word)]
    width = max(map(len, found), default=0)
    return [
        f"{name:<{width}}  {shorten(seam['reason'], _WIDTH, placeholder=' ...')}  [{seam['place']}]"
        for name, seam in sorted(found.items())
    ]


def _described_line(engine: DrivenModel, word: str) -> str:
    try:
        method = engine.described(word)
    except ConfigError as error:
        raise UsageError(f"{error} %lab seams lists the methods that decide events") from None
    return f"{method['method']}  decides no event by itself  [{method['file']}:{method['line']}]"


def cell_of(lab: Lab, engine: DrivenModel, name: str) -> tuple[str, str]:
    """Return a cell that replaces a method by its own source, and the place of that source."""
    method = engine.described(named(lab, name))
    return f"%%lab patch {method['method']}\n{method['text']}\n", f"{method['file']}:{method['line']}"


def patches_of(lab: Lab, name: str, text: str, shown: Lab | None) -> tuple[Patch, ...]:
    """Return the patch of a cell, after those of the lab shown, if any."""
    engine = None if shown is None else engine_of(shown)
    return (*(() if engine is None else engine.driven.patches), Patch(named(lab, name), text))


def named(lab: Lab, name: str) -> str:
    """Return Class.method for the name of a method that decides events; any other name unchanged."""
    if "." in name:
        return name
    found = {seam["seam"] for seam in lab.session.seams.values() if seam["seam"].rpartition(".")[2] == name}
    if len(found) > 1:
        raise UsageError(f"several classes have a method {name}: do you mean {' or '.join(sorted(found))}?")
    return found.pop() if found else name
