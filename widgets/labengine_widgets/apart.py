"""Sentences of two sides that do not do the same: where the words are equal, what differs is said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from labengine import events as ev
from labengine_widgets.names import counted

Sentences = tuple[str, str]

_MOVED = "not the same one: ids are counted past the null block"


def told_apart(sentences: Sentences, left: Sequence[ev.Event], right: Sequence[ev.Event]) -> Sentences:
    """The same sentences; equal ones of events that differ each with the fields in which they do."""
    if sentences[0] != sentences[1]:
        return sentences
    for one, other in zip(left, right, strict=False):
        names = list(_differing(one, other))
        if type(one) is not type(other):
            return f"{sentences[0]} ({type(one).__name__})", f"{sentences[1]} ({type(other).__name__})"
        if names:
            return f"{sentences[0]} ({_values(one, names)})", f"{sentences[1]} ({_values(other, names)})"
    if len(left) == len(right):
        return sentences[0], f"{sentences[1]} ({_MOVED})"
    return f"{sentences[0]} ({counted(len(left), 'event')})", f"{sentences[1]} ({counted(len(right), 'event')})"


def _differing(one: ev.Event, other: ev.Event) -> Iterable[str]:
    if type(one) is type(other):
        yield from (
            f.name for f in fields(one) if getattr(one, f.name) != getattr(other, f.name) and f.name != "edition"
        )


def _values(event: ev.Event, names: Iterable[str]) -> str:
    return ", ".join(f"{name} {_plain(getattr(event, name))}" for name in names)


def _plain(value: Any) -> str:
    return f"{value.hex()[:8]}…" if isinstance(value, bytes) else str(value)
