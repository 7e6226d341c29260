"""Values that an answer returned and that no event can hold: a number where a tuple of block ids belongs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, get_origin, get_type_hints

from labengine.config import is_single_int, shown
from labengine.events import Event
from labengine.lab import Lab

_ASKED = {
    ("BlockCached", "mapped"): ("mapped_after", "a tuple of block ids, such as `(3,)`"),
}
"""By event and field: the method that returns the value, and what it has to return."""
_KINDS = {int: "number", list: "list", set: "set", str: "text"}


def odd_value(lab: Lab) -> tuple[int, str] | None:
    """Return the number of the first event with a value of another type than its field's, and a sentence; or None."""
    assert lab.timeline is not None
    for number, event in enumerate(lab.timeline.events(), lab.timeline.num_dropped):
        for name, value in _odd_fields(event):
            return number, _sentence(type(event).__name__, name, value)
    return None


def _odd_fields(event: Event) -> Iterator[tuple[str, Any]]:
    for name, hint in _checked_fields(type(event)):  # type: ignore[arg-type]
        value = getattr(event, name)
        if not (is_single_int(value) if hint is int else _is_tuple(value, hint)):
            yield name, value


@cache
def _checked_fields(kind: type[Any]) -> tuple[tuple[str, Any], ...]:
    """Return the fields that are looked at, with their types."""
    hints = get_type_hints(kind).items()
    return tuple((name, hint) for name, hint in hints if hint is int or get_origin(hint) is tuple)


def _is_tuple(value: object, hint: Any) -> bool:
    return isinstance(value, tuple) and (hint != tuple[int, ...] or all(map(is_single_int, value)))


def _sentence(event: str, field: str, value: object) -> str:
    yours = f"the {_KINDS[type(value)]} {shown(value)}" if type(value) in _KINDS else shown(value)
    if (event, field) in _ASKED:
        method, asked = _ASKED[event, field]
        return f"`{method}` has to return {asked}; yours returned {yours}."
    return f"A method has to return what {event}.{field} can hold; yours returned {yours}."
