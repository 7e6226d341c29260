"""What code says of itself to whoever must end it: a Ctrl-C, or a run that is to stop. See engine/safe_points.py.

A module or a package says it once where it begins, `plays(__name__, Role.FOLLOWS_EVENTS)`; a function by a decorator,
which registers its code and returns it as it is: a call costs nothing. So a rename takes the role along. Roles hold for
all modules of a package that have none of their own.

What does not work: frames inside a function that is defined in a marked function have another code object, and no role.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from types import CodeType, FrameType
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])


class Role(Enum):
    """What an exception from outside means for a module's code."""

    CORE = auto()
    """The core: what it changes is journalled, and rolled back."""
    NOT_UNDONE = auto()
    """The journal itself, and what no journal undoes."""
    FOLLOWS_EVENTS = auto()
    """It hears of changes, and would miss one."""
    COMPUTES = auto()
    """A forward pass takes long, but ends by itself."""
    ENGINE = auto()
    """Its marked methods are rolled back; the others, such as the rollback itself, are not."""
    SESSION = auto()
    """Its calls begin steps: there, everything below has been unwound."""
    USERS = auto()
    """It stands for code of the user."""


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
    """Mark a method of a module that follows events which only passes a call on: what it calls may be endless."""
    _passing.add(_code_of(function))
    return function


def role_of(frame: FrameType) -> Role | None:
    """Return the role of the module in whose code a frame is."""
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
        raise TypeError(f"{function!r} has no code of its own: decorate the function first")
    return code
