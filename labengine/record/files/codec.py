"""Events as JSON rows: [index of the kind, *fields in the order of the dataclass], with bytes as hex.

    BlockFreed(3, 0, 0, 1, 0, "tail", "finished")  ->  [20, 3, 0, 0, 1, 0, "tail", "finished"]

A row's values go straight to `dumps`: tuples become lists, bytes become hex.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, fields
from typing import Annotated, Any, get_type_hints

from labengine.events import EVENT_KINDS, Event, Whole
from labengine.record.files.parsing import TraceError
from labengine.record.files.shapes import PoolSize, shape_of

Row = Sequence[Any]
"""An event as values of JSON types: the number of its kind, then its fields."""

Kind = Sequence[str]
"""An event kind's name, and the names of its fields."""

KINDS: list[list[str]] = [[kind.__name__, *(f.name for f in fields(kind))] for kind in EVENT_KINDS]
"""Names and fields of the rows' kinds. The header of a file or a message carries this list."""


def dumps(document: object) -> bytes:
    """Return compact JSON in UTF-8, with bytes as hex. Lone surrogates in a text are kept, escaped."""
    return _ENCODER.encode(document).encode()


def rows(events: Iterable[Event]) -> list[Row]:
    """Return one row per event."""
    row_of_kind = _ROW_OF
    return [row_of_kind[type(event)](event) for event in events]


def event_of(row: Row) -> Event:
    """Return the event of a JSON row that `check_rows` has accepted."""
    number, *values = row
    for i, read in _READERS[number]:
        values[i] = read(values[i])
    return EVENT_KINDS[number](*values)


def check_rows(rows: Sequence[Row], pool: PoolSize) -> None:
    """Check rows numbered by KINDS.

    Raises LookupError, TypeError or ValueError for values of other types and for ids out of bounds.
    """
    by_kind: dict[int, list[Row]] = defaultdict(list)
    _KIND_NUMBER.check([row[0] for row in rows], pool)
    for row in rows:
        by_kind[row[0]].append(row)
    for number, alike in by_kind.items():
        try:
            _, *columns = zip(*alike, strict=True)
            for shape, column in zip(_SHAPES[number], columns, strict=True):
                shape.check(column, pool)
        except (TypeError, ValueError) as error:
            name, *names = KINDS[number]
            raise ValueError(f"{name} with {', '.join(names) or 'no fields'}: {error}") from None


def renumbering(kinds: Sequence[Kind]) -> Callable[[Any], Row]:
    """Return a function that converts rows of these kinds to rows of KINDS, with defaults for missing fields.

    Raises TraceError for kinds of a newer labengine; the function raises LookupError, TypeError or ValueError for rows
    of other kinds.
    """
    ours = [_number_and_missing(kind) for kind in kinds]

    def renumbered(row: Any) -> Row:
        number, *values = row
        if type(number) is not int or number < 0:
            raise ValueError("a row's kind must be a number")
        mine, missing = ours[number]
        return [mine, *values, *missing]

    return renumbered


def _number_and_missing(kind: Kind) -> tuple[int, list[Any]]:
    """Return our number of a kind, and the defaults of the fields that it lacks, as JSON."""
    if not kind:
        raise TraceError("an event kind has no name: download the trace again")
    name, *names = kind
    number = next((number for number, known in enumerate(KINDS) if known[0] == name), None)
    if number is None:
        raise TraceError(f"this labengine does not know the event {name[:80]!r}: open the trace with a newer version")
    missing = [f.default for f in fields(EVENT_KINDS[number])[len(names) :]]
    if names != KINDS[number][1 : len(names) + 1] or MISSING in missing:
        raise TraceError(f"this labengine's {name} has fields other than {names}: open the trace with a newer version")
    return number, [[*value] if isinstance(value, tuple) else value for value in missing]


def plain(value: object) -> object:
    """Convert a value that JSON lacks: a hash, or another library's integer, which a user's part may emit."""
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "__index__"):
        return value.__index__()
    raise TypeError(f"an event can contain only ids, integers, strings and hashes, got {value!r}")


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=plain, check_circular=False, allow_nan=False)


def _row_of(number: int, kind: type[Event]) -> Callable[[Any], Row]:
    """Compile the row function of a kind: `(20, event.block_id, ...)` takes half as long as an attrgetter's tuple."""
    values = "".join(f"event.{f.name}, " for f in fields(kind))
    row: Callable[[Any], Row] = eval(f"lambda event: ({number}, {values})")
    return row


_ROW_OF = {kind: _row_of(number, kind) for number, kind in enumerate(EVENT_KINDS)}


_SHAPES = [
    [shape_of(hint) for name, hint in get_type_hints(kind, include_extras=True).items() if name in names]
    for kind, (_, *names) in zip(EVENT_KINDS, KINDS, strict=True)
]
_READERS = [[(i, shape.read) for i, shape in enumerate(shapes) if shape.read is not None] for shapes in _SHAPES]
_KIND_NUMBER = shape_of(Annotated[int, Whole(high=len(KINDS) - 1)])
