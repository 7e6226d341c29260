"""Walks a JSON document: every place in it, and copies with another value at one place."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

Place = tuple[str | int, ...]
"""Keys and indexes that lead to a value."""

REMOVED = object()
"""Stands for no value: the key or the element is taken out."""


def places(document: Any, place: Place = ()) -> Iterator[Place]:
    """Yield the place of every value below the document, containers included."""
    if place:
        yield place
    children = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in children if isinstance(document, (dict, list)) else ():
        if isinstance(value, (dict, list)):
            yield from places(value, (*place, key))
        else:
            yield (*place, key)


def value_at(document: Any, place: Place) -> Any:
    """Return the value at a place."""
    for key in place:
        document = document[key]
    return document


def with_value(document: Any, place: Place, value: Any) -> Any:
    """Return a copy with another value at a place."""
    copy = json.loads(json.dumps(document))
    parent = value_at(copy, place[:-1])
    if value is REMOVED:
        del parent[place[-1]]
    else:
        parent[place[-1]] = value
    return copy


def with_texts(document: Any, change: Callable[[str], str], *, has_keys: bool = False) -> Any:
    """Return a copy with all texts changed; with has_keys the keys, too."""
    if isinstance(document, dict):
        return {
            change(key) if has_keys else key: with_texts(value, change, has_keys=has_keys)
            for key, value in document.items()
        }
    if isinstance(document, list):
        return [with_texts(value, change, has_keys=has_keys) for value in document]
    return change(document) if isinstance(document, str) else document
