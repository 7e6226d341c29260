"""The subjects of an event, from the types of its fields: blocks, and the changed table entry."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from labengine.events.event import Event
from labengine.events.fields import Role, Whole

Path = tuple[int | None, ...]
"""Path to values in a row: an index into it, then an index into each nested tuple, or None for all its items."""

_CHANGED: tuple[Role, ...] = ("block", "gaining block", "losing block")
_COUNTED: tuple[Role, ...] = ("gaining block", "losing block")
BLOCK_ROLES: tuple[Role, ...] = (*_CHANGED, "named block")


_PATHS: dict[tuple[type[Event], tuple[Role, ...]], tuple[Path, ...]] = {}


def paths(kind: type[Event], *roles: Role) -> tuple[Path, ...]:
    """Return the paths to the values with these roles among a kind's fields."""
    known = _PATHS.get((kind, roles))
    if known is None:
        hints = get_type_hints(kind, include_extras=True)
        found = [(i, path) for i, f in enumerate(fields(kind)) for path in _paths_in(hints[f.name], roles)]
        known = _PATHS[kind, roles] = tuple((place, *path) for place, path in found)
    return known


def blocks_of(event: Event) -> set[int]:
    """Return the ids of the blocks that an event changes or fills."""
    return {block_id for path in paths(type(event), *_CHANGED) for block_id in _at(_values(event), path)}


def counted_blocks(event: Event) -> tuple[int, ...]:
    """Return the ids of the blocks whose ref counts, and places in the free queue, the event changes."""
    return tuple(i for path in paths(type(event), *_COUNTED) for i in _at(_values(event), path))


def is_loss(event: Event) -> bool:
    """Return True if a block loses a reference in the event."""
    return bool(paths(type(event), "losing block"))


def changed_entry(event: Event) -> tuple[int, int, int] | None:
    """Return (request_id, group, index) of the table entry that the event changes; None if it changes none."""
    if not paths(type(event), "entry"):
        return None
    of_entry: Any = event
    return of_entry.request_id, of_entry.group, of_entry.index


def renumbered(event: Event, by: int) -> Event:
    """Return the event with `by` added to all its block ids, including the null block's (-1 or 0)."""
    values = _values(event)
    for path in paths(type(event), *BLOCK_ROLES):
        values = _shifted(values, path, by)
    return type(event)(*values)


def _values(event: Event) -> tuple[Any, ...]:
    return tuple(getattr(event, field.name) for field in fields(event))


def _at(value: Any, path: Path) -> list[Any]:
    if not path:
        return [value]
    place, *rest = path
    items = value if place is None else [value[place]]
    return [found for item in items for found in _at(item, tuple(rest))]


def _shifted(value: Any, path: Path, by: int) -> Any:
    if not path:
        return value + by
    place, *rest = path
    return tuple(
        _shifted(item, tuple(rest), by) if place in (None, number) else item for number, item in enumerate(value)
    )


def _paths_in(hint: Any, roles: tuple[Role, ...]) -> list[Path]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return [()] if isinstance(arguments[1], Whole) and arguments[1].role in roles else []
    if origin is not tuple:
        return []
    if arguments[-1] is ...:
        return [(None, *path) for path in _paths_in(arguments[0], roles)]
    return [(place, *path) for place, item in enumerate(arguments) for path in _paths_in(item, roles)]
