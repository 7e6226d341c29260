"""The effect of a core's overrides: never called, called without effect, or decisions that differ from production."""

from __future__ import annotations

from collections.abc import Mapping

from labengine.record.wording import listed

Overrides = Mapping[str, bool | None]
"""As Watch.overrides: True if an override has decided differently from production, None if it was never called."""


def override_notes(overrides: Overrides, came_of_it: str = "it made no difference") -> list[str]:
    """Return a sentence on the overrides never called, and one on those that decided differently."""
    never = _names(overrides, None)
    otherwise = _names(overrides, True)
    were = "was" if len(never) == 1 else "were"
    notes = [f"{listed(never, len(never))} {were} never called in this workload."] if never else []
    words = f"{listed(otherwise, len(otherwise))} decided differently from production, and {came_of_it}."
    return [*notes, words] if otherwise else notes


def notes_of_none(overrides: Overrides) -> list[str]:
    """Return the sentences of `override_notes` and one on called overrides, for a run in which none has mattered."""
    called = _names(overrides, False)
    were = "was" if len(called) == 1 else "were"
    words = f"{listed(called, len(called))} {were} called, and made no difference."
    return [words, *override_notes(overrides)] if called else override_notes(overrides)


def override_line(overrides: Overrides) -> str:
    """Return the overrides in one line, each with its effect."""
    words = {None: " (never called)", True: " (decides differently from production)", False: ""}
    return ", ".join(f"{name}{words[differs]}" for name, differs in overrides.items())


def merged(one: Overrides, other: Overrides) -> dict[str, bool | None]:
    """Return the effect of overrides over two runs."""
    return {name: max(one.get(name), other.get(name), key=_WEIGHT.index) for name in {**one, **other}}


_WEIGHT = (None, False, True)


def _names(overrides: Overrides, differs: bool | None) -> list[str]:
    return [name for name, found in overrides.items() if found is differs]
