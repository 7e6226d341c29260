"""Checks of columns: the types of all values of one field of many rows, and their bounds.

What passes can be folded, drawn and sent to a browser in memory and time that the file's own size bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from labengine.events import UNKNOWN_TOKEN

MAX_NUMBER = 2**31 - 1
"""Of requests, positions, steps and counts: a browser keeps them in 32 bits."""

MAX_EXACT = 2**53 - 1
"""A browser's numbers are exact up to here."""

MAX_TOKEN_ID = 2**63 - 1
MAX_BLOCK_SIZE = 2**20
_HEX_DIGITS = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class PoolSize:
    """The pool's size: bounds of block ids and group numbers."""

    num_blocks: int
    num_groups: int


Column = Sequence[Any]  # one field of many events, as JSON values
Check = Callable[[Column, PoolSize], None]
"""Raises ValueError or TypeError for a column with other values."""


def ints(low: int, high: int) -> Check:
    """Check integers within bounds, both included."""

    def check(column: Column, pool: PoolSize) -> None:
        _within(column, low, high)

    return check


def lists(item: Check) -> Check:
    """Check lists, whose items together are a column."""

    def check(column: Column, pool: PoolSize) -> None:
        _all_of(column, list)
        item(list(chain.from_iterable(column)), pool)

    return check


def records(*items: Check) -> Check:
    """Check lists of as many values as there are checks, each a column."""

    def check(column: Column, pool: PoolSize) -> None:
        _all_of(column, list)
        for item, values in zip(items, zip(*column, strict=True) if column else [()] * len(items), strict=True):
            item(values, pool)

    return check


def optional(item: Check) -> Check:
    """Check values, or null."""
    return lambda column, pool: item([value for value in column if value is not None], pool)


def one_of(*values: object) -> Check:
    """Check that each value is one of these."""

    def check(column: Column, pool: PoolSize) -> None:
        _all_of(column, *map(type, values))
        if not set(column) <= set(values):
            raise ValueError(f"{str(column)[:60]} is none of {values}")

    return check


def texts(column: Column, pool: PoolSize) -> None:
    """Check texts."""
    _all_of(column, str)


def flags(column: Column, pool: PoolSize) -> None:
    """Check booleans."""
    _all_of(column, bool)


def hashes(column: Column, pool: PoolSize) -> None:
    """Check bytes in lower-case hex."""
    _all_of(column, str)
    if not _HEX_DIGITS.issuperset("".join(column)) or any(len(text) % 2 for text in column):
        raise ValueError("a hash is not in hex digits")


def blocks(column: Column, pool: PoolSize) -> None:
    """Blocks of the pool."""
    _within(column, 0, pool.num_blocks - 1)


def blocks_or_null(column: Column, pool: PoolSize) -> None:
    """Blocks of the pool, or -1 for none."""
    _within(column, -1, pool.num_blocks - 1)


def groups(column: Column, pool: PoolSize) -> None:
    """Numbers of KV-cache groups."""
    _within(column, 0, pool.num_groups - 1)


def _within(column: Column, low: int, high: int) -> None:
    _all_of(column, int)
    if column and not low <= min(column) <= max(column) <= high:
        wrong = min(column) if min(column) < low else max(column)
        raise ValueError(f"{wrong} is not between {low} and {high}")


def _all_of(column: Column, *types: type) -> None:
    if not set(map(type, column)) <= set(types):
        raise TypeError(f"a value is no {' or '.join(sorted({kind.__name__ for kind in types}))}")


numbers = ints(0, MAX_NUMBER)
token_id = ints(UNKNOWN_TOKEN, MAX_TOKEN_ID)
token_ids = lists(token_id)
group_rows = lists(records(texts, ints(1, MAX_BLOCK_SIZE), optional(ints(1, MAX_NUMBER))))
transfers = lists(records(groups, numbers, blocks_or_null, hashes))
tables = lists(lists(blocks_or_null))
hash_keys = lists(records(groups, hashes))
pins = lists(records(groups, hashes, numbers))
