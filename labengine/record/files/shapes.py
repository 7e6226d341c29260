"""Shapes: type hints applied to untrusted JSON. A shape checks whole columns, and reads a checked value.

Accepted values can be folded, drawn and sent to a browser in memory and time bounded by the file's size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from labengine.events import Whole
from labengine.record.wording import visible


@dataclass(frozen=True, slots=True)
class PoolSize:
    """The pool's size, which bounds block ids and group numbers."""

    num_blocks: int = 0
    num_groups: int = 0


Column = Sequence[Any]  # one field of many events, as JSON values
Check = Callable[[Column, PoolSize], None]
"""Raises ValueError or TypeError for a column with other values."""

NO_POOL = PoolSize()


@dataclass(frozen=True, slots=True)
class Shape:
    """Checks a column, and reads a checked value of it. Without `read`, values stay unchanged."""

    check: Check
    read: Callable[[Any], Any] | None = None

    def __call__(self, value: Any) -> Any:
        """Return one value, checked and read. Raises TypeError or ValueError for another shape."""
        self.check((value,), NO_POOL)
        return value if self.read is None else self.read(value)


@cache
def shape_of(hint: Any) -> Shape:
    """Return the shape of a type hint: a number, text, flag, hash, Literal, tuple, or one of these or None."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _whole(arguments[1]) if isinstance(arguments[1], Whole) else shape_of(arguments[1])
    if origin is Literal:
        return Shape(_one_of(arguments))
    if origin in (Union, UnionType):
        return _optional(shape_of(next(one for one in arguments if one is not NoneType)))
    if origin is tuple:
        return _array(shape_of(arguments[0])) if arguments[-1] is ... else _record(*map(shape_of, arguments))
    return _PLAIN[hint]


def _whole(mark: Whole) -> Shape:
    def check(column: Column, pool: PoolSize) -> None:
        high = mark.high if isinstance(mark.high, int) else getattr(pool, mark.high) - 1
        _all_of(column, int)
        if column and not mark.low <= min(column) <= max(column) <= high:
            wrong = min(column) if min(column) < mark.low else max(column)
            raise ValueError(f"a value must be between {mark.low} and {high}, got {wrong}")

    return Shape(check)


def _optional(item: Shape) -> Shape:
    def check(column: Column, pool: PoolSize) -> None:
        item.check([value for value in column if value is not None], pool)

    read = item.read
    return Shape(check, read and (lambda value: None if value is None else read(value)))


def _array(item: Shape) -> Shape:
    def check(column: Column, pool: PoolSize) -> None:
        _all_of(column, list)
        item.check(list(chain.from_iterable(column)), pool)

    read = item.read
    return Shape(check, tuple if read is None else lambda values: tuple(map(read, values)))


def _record(*items: Shape) -> Shape:
    def check(column: Column, pool: PoolSize) -> None:
        _all_of(column, list)
        for item, values in zip(items, zip(*column, strict=True) if column else [()] * len(items), strict=True):
            item.check(values, pool)

    reads = [(i, item.read) for i, item in enumerate(items) if item.read is not None]

    def read(values: list[Any]) -> tuple[Any, ...]:
        found = list(values)
        for i, read_one in reads:
            found[i] = read_one(found[i])
        return tuple(found)

    return Shape(check, read if reads else tuple)


def _one_of(values: tuple[object, ...]) -> Check:
    def check(column: Column, pool: PoolSize) -> None:
        _all_of(column, *map(type, values))
        if not set(column) <= set(values):
            raise ValueError(f"a value must be one of {values}, got {str(column)[:60]}")

    return check


def _texts(column: Column, pool: PoolSize) -> None:
    _all_of(column, str)


def _flags(column: Column, pool: PoolSize) -> None:
    _all_of(column, bool)


def _objects(column: Column, pool: PoolSize) -> None:
    _all_of(column, dict)


_HEX_DIGITS = frozenset("0123456789abcdef")


def _hashes(column: Column, pool: PoolSize) -> None:
    _all_of(column, str)
    if not _HEX_DIGITS.issuperset("".join(column)) or any(len(text) % 2 for text in column):
        raise ValueError("a hash must have an even number of hex digits and nothing else")


def _seconds(column: Column, pool: PoolSize) -> None:
    """Python's JSON accepts NaN and Infinity, which a browser cannot parse."""
    _all_of(column, int, float)
    if not all(0 <= number < 1e15 for number in column):
        raise ValueError("a number of seconds is negative or too large")


def _all_of(column: Column, *types: type) -> None:
    if not set(map(type, column)) <= set(types):
        raise TypeError(f"a value must be of type {' or '.join(sorted({kind.__name__ for kind in types}))}")


_PLAIN: dict[Any, Shape] = {
    int: _whole(Whole()),
    str: Shape(_texts, visible),
    bool: Shape(_flags),
    bytes: Shape(_hashes, bytes.fromhex),
    float: Shape(_seconds, float),
    dict: Shape(_objects),
}
"""A plain int is >= 0. A float is a number of seconds."""
