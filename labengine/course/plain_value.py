"""A value of a reader's code as plain data, which can be judged where the code has no say."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from operator import index
from typing import Any

from labengine.config import shown

_ATOMS = (bool, int, float, complex, str, bytes, type(None))
_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class Foreign:
    """A value that is no plain data: its type and its text."""

    kind: str
    text: str

    def __repr__(self) -> str:
        return self.text


def plain_value(value: Any) -> Any:
    """Return a copy of a value in Python's own types; a Foreign for one that is of others, or larger than 1 MiB."""
    copied = _copied(value)
    return copied if len(pickle.dumps(copied)) <= _MAX_BYTES else _foreign(value)


def _copied(value: Any) -> Any:
    kind = type(value)
    if kind in _ATOMS:
        return value
    for base in (list, tuple):
        if issubclass(kind, base):
            return base(map(_copied, base.__iter__(value)))
    if kind in (set, frozenset):
        return kind(map(_copied, value))
    if kind is dict:
        return {_copied(key): _copied(one) for key, one in value.items()}
    if issubclass(kind, float):
        return float.__pos__(value)
    return int.__pos__(index(value)) if hasattr(kind, "__index__") else _foreign(value)


def _foreign(value: Any) -> Foreign:
    return Foreign("".join((type(value).__name__,)), "".join((shown(value),)))
