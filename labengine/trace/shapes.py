"""What JSON must look like to be read as an event's field: the dataclass's own type hints, turned into readers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from labengine.config import MAX_NUM_BLOCKS
from labengine.events import Event


@dataclass(frozen=True, slots=True)
class Shape:
    """Accepts values of these JSON types, and reads them; without `read` a value is taken as it is."""

    types: tuple[type, ...]
    read: Callable[[Any], Any] | None = None

    def __call__(self, value: Any) -> Any:
        """Return the value read. TypeError or ValueError for another shape."""
        if type(value) not in self.types:
            raise TypeError(f"{str(value)[:40]!r} is no {' or '.join(t.__name__ for t in self.types)}")
        return value if self.read is None else self.read(value)


def array_of(item: Shape) -> Shape:
    """[item, ...] as a tuple."""

    def read(values: list[Any]) -> tuple[Any, ...]:
        if item.read is None and set(map(type, values)) <= set(item.types):
            return tuple(values)
        return tuple(map(item, values))

    return Shape((list,), read)


def row_of(*items: Shape) -> Shape:
    """[first, second, ...] as a tuple."""
    return Shape((list,), lambda values: tuple(item(value) for item, value in zip(items, values, strict=True)))


def optional(item: Shape) -> Shape:
    """Return the item, or null."""
    types, read = (*item.types, NoneType), item.read
    if read is None:
        return Shape(types)
    return Shape(types, lambda value: None if value is None else read(value))


def _at_most_all_blocks(number: int) -> int:
    """A number of blocks decides how much memory a fold takes."""
    if not 0 <= number <= MAX_NUM_BLOCKS:
        raise ValueError(f"{number} blocks are more than a pool can have")
    return number


def _a_time(number: float) -> float:
    """JSON may say NaN and Infinity, which no page can read."""
    if not 0 <= number < 1e15:
        raise ValueError(f"{number} is no number of seconds")
    return float(number)


INT, TEXT, FLAG = Shape((int,)), Shape((str,)), Shape((bool,))
NUMBER, FACTS = Shape((int, float)), Shape((dict,))
SECONDS = Shape((int, float), _a_time)
HASH = Shape((str,), bytes.fromhex)
NUM_BLOCKS = Shape((int,), _at_most_all_blocks)
IDS = array_of(INT)
TABLES = array_of(IDS)

_BY_TYPE = {int: INT, str: TEXT, bool: FLAG, bytes: HASH}


def shapes_of(kind: type[Event]) -> dict[str, Shape]:
    """Return the shape of each field of an event kind, in their order."""
    hints = get_type_hints(kind)
    return {name: NUM_BLOCKS if name == "num_blocks" else _shape(hint) for name, hint in hints.items()}


def _shape(hint: Any) -> Shape:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return TEXT
    if origin in (Union, UnionType):
        return optional(_shape(next(a for a in arguments if a is not NoneType)))
    if origin is tuple:
        return array_of(_shape(arguments[0])) if arguments[-1] is ... else row_of(*map(_shape, arguments))
    return _BY_TYPE[hint]
