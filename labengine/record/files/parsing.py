"""Parsing of untrusted JSON: shapes read it into Python values, and derive from an event's type hints."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from labengine.config import MAX_NUM_BLOCKS, ConfigError
from labengine.events import Event
from labengine.record.wording import visible


class TraceError(ConfigError):
    """A trace that is damaged, of another kind, or newer than this labengine; the message names the remedy."""

    def __init__(self, message: str) -> None:
        super().__init__(visible(message))  # it may quote the file, and repr leaves some characters that draw nothing


@dataclass(frozen=True, slots=True)
class Shape:
    """Accepts values of these JSON types and reads them; without `read` a value is returned unchanged."""

    types: tuple[type, ...]
    read: Callable[[Any], Any] | None = None

    def __call__(self, value: Any) -> Any:
        """Return the value read. Raises TypeError or ValueError for another shape."""
        if type(value) not in self.types:
            raise TypeError(f"{str(value)[:40]!r} is no {' or '.join(t.__name__ for t in self.types)}")
        return value if self.read is None else self.read(value)


def array_of(item: Shape) -> Shape:
    """Shape of [item, ...], read as a tuple."""

    def read(values: list[Any]) -> tuple[Any, ...]:
        if item.read is None and set(map(type, values)) <= set(item.types):
            return tuple(values)
        return tuple(map(item, values))

    return Shape((list,), read)


def row_of(*items: Shape) -> Shape:
    """Shape of [first, second, ...], read as a tuple."""
    return Shape((list,), lambda values: tuple(item(value) for item, value in zip(items, values, strict=True)))


def optional(item: Shape) -> Shape:
    """Shape of the item, or null."""
    types, read = (*item.types, NoneType), item.read
    if read is None:
        return Shape(types)
    return Shape(types, lambda value: None if value is None else read(value))


def _num_blocks(number: int) -> int:
    """Check a number of blocks: it decides how much memory a fold takes."""
    if not 0 <= number <= MAX_NUM_BLOCKS:
        raise ValueError(f"{number} blocks are more than a pool can have")
    return number


def _seconds(number: float) -> float:
    """Check a number of seconds: Python's JSON accepts NaN and Infinity, which a browser cannot parse."""
    if not 0 <= number < 1e15:
        raise ValueError(f"{number} is no number of seconds")
    return float(number)


INT, TEXT, FLAG = Shape((int,)), Shape((str,), visible), Shape((bool,))
NUMBER, FACTS = Shape((int, float)), Shape((dict,))
SECONDS = Shape((int, float), _seconds)
HASH = Shape((str,), bytes.fromhex)
NUM_BLOCKS = Shape((int,), _num_blocks)
IDS = array_of(INT)
TABLES = array_of(IDS)

_BY_TYPE = {int: INT, str: TEXT, bool: FLAG, bytes: HASH}


def shapes_of(kind: type[Event]) -> dict[str, Shape]:
    """Return the shape of each field of an event kind, in the fields' order."""
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]
    return {name: NUM_BLOCKS if name == "num_blocks" else _shape(hints[name]) for name in names}


def _shape(hint: Any) -> Shape:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return TEXT
    if origin in (Union, UnionType):
        return optional(_shape(next(a for a in arguments if a is not NoneType)))
    if origin is tuple:
        return array_of(_shape(arguments[0])) if arguments[-1] is ... else row_of(*map(_shape, arguments))
    return _BY_TYPE[hint]


def parsed(text: bytes) -> Any:
    """Return the JSON document. Raises TraceError for invalid JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"the trace is damaged ({error}): get it again") from None


def parsed_as(shape: Shape, text: bytes) -> Any:
    """Return the JSON document, read as a shape. Raises TraceError for another shape."""
    document = parsed(text)
    try:
        return shape(document)
    except (TypeError, ValueError) as error:
        raise TraceError(f"the trace is damaged ({error}): get it again") from None
