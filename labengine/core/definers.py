"""The class that defines a part's method, and whether that class is a user's own."""

from __future__ import annotations

from types import FunctionType

_OWN = ("labengine.core.", "labengine.engine.", "labengine.check.")


def definers(owner: type, name: str) -> list[type]:
    """Return the classes that define `name`, the effective one first. Methods left to subclasses do not count."""
    return [cls for cls in owner.__mro__[:-1] if name in vars(cls) and not _is_left_open(vars(cls)[name])]


def class_name(owner: type) -> str:
    """Return a class's name, without the function that it was written in."""
    return owner.__qualname__.rpartition("<locals>.")[2]


def is_custom(owner: type) -> bool:
    """Return True for a class outside labengine's own core, engine and checks."""
    return not owner.__module__.startswith(_OWN)


def _is_left_open(value: object) -> bool:
    return isinstance(value, FunctionType) and "NotImplementedError" in value.__code__.co_names
