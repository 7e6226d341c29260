"""Roles of code, which decide where a Ctrl-C or the end of a run may interrupt it. See engine/safe_points.py.

A module or package registers its role once at its top, `plays(__name__, Role.FOLLOWS_EVENTS)`; a function uses a
decorator, which registers its code and returns the function itself, so a call costs nothing. A rename therefore keeps
the role. A package's role holds for all its modules without one.

Limitation: a function defined inside a marked function has a different code object, and therefore no role.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from types import CodeType, FrameType
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])


class Role(Enum):
    """Meaning of an exception from outside for a module's code."""

    CORE = auto()
    """The core: its changes are journalled and rolled back."""
    NOT_UNDONE = auto()
    """The journal itself, and changes that no journal undoes."""
    FOLLOWS_EVENTS = auto()
    """It follows changes, and would miss one."""
    COMPUTES = auto()
    """A forward pass takes long, but ends by itself."""
    ENGINE = auto()
    """Its marked methods are rolled back; others, such as the rollback itself, are not."""
    SESSION = auto()
    """Its calls begin steps: once an exception reaches it, everything below has been unwound."""
    USERS = auto()
    """It stands for the user's code."""


_roles: dict[str, Role] = {}
_steps: set[CodeType] = set()
_passing: set[CodeType] = set()


def plays(module: str, role: Role) -> None:
    """Register the role of a module, or of all modules of a package."""
    _roles[module] = role


def rolls_back(function: F) -> F:
    """Mark a method of an engine whose failure rolls the step back."""
    _steps.add(_code_of(function))
    return function


def passes_calls_on(function: F) -> F:
    """Mark a method that only passes a call on, in a module that follows events: the called code may be endless."""
    _passing.add(_code_of(function))
    return function


def role_of(frame: FrameType) -> Role | None:
    """Return the role of a frame's module."""
    name = str(frame.f_globals.get("__name__"))
    while name:
        if name in _roles:
            return None if frame.f_code in _passing else _roles[name]
        name = name.rpartition(".")[0]
    return None


def is_in_step(frame: FrameType) -> bool:
    """Return True in a method whose failure rolls the step back."""
    return frame.f_code in _steps


def _code_of(function: Callable[..., object]) -> CodeType:
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        raise TypeError(f"{function!r} has no code object: decorate the function first")
    return code
