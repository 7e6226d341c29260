"""What the overrides of a core have come to: never called, or another decision than production's."""

from __future__ import annotations

from collections.abc import Mapping

from labengine.record.wording import listed

Overrides = Mapping[str, bool | None]
"""As Watch.overrides: True for an override that has decided otherwise than production, None for one never called."""


def override_notes(overrides: Overrides, came_of_it: str = "nothing came of it") -> list[str]:
    """Return a sentence on those that nothing has called, and one on those that have decided otherwise."""
    never = _names(overrides, None)
    otherwise = _names(overrides, True)
    were = "was" if len(never) == 1 else "were"
    notes = [f"{listed(never, len(never))} {were} never called in this workload."] if never else []
    words = f"{listed(otherwise, len(otherwise))} decided otherwise than production, and {came_of_it}."
    return [*notes, words] if otherwise else notes


def notes_of_none(overrides: Overrides) -> list[str]:
    """Return a sentence on those that were called, and those of `override_notes`: no override has mattered."""
    called = _names(overrides, False)
    were = "was" if len(called) == 1 else "were"
    words = f"{listed(called, len(called))} {were} called, and nothing came of it."
    return [words, *override_notes(overrides)] if called else override_notes(overrides)


def override_line(overrides: Overrides) -> str:
    """Return the overrides in one line, each with what it has come to."""
    words = {None: " (never called)", True: " (decides otherwise than production)", False: ""}
    return ", ".join(f"{name}{words[differs]}" for name, differs in overrides.items())


def merged(one: Overrides, other: Overrides) -> dict[str, bool | None]:
    """Return what overrides have come to in either of two runs."""
    return {name: max(one.get(name), other.get(name), key=_WEIGHT.index) for name in {**one, **other}}


_WEIGHT = (None, False, True)


def _names(overrides: Overrides, differs: bool | None) -> list[str]:
    return [name for name, found in overrides.items() if found is differs]
