"""Old public names: each still works, returns what its new name returns, and gives a DeprecationWarning.

To rename something public, add one line to OLD_NAMES or OLD_KEYWORDS. A class with old names is decorated with
`with_old_names`, a function with old keywords with `with_old_keywords`; a module with old names asks `new_name` in its
`__getattr__`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

OLD_NAMES: dict[str, dict[str, str]] = {
    "Lab": {"bench": "view_source"},
    "Trace": {"bench": "view_source"},
    "Comparison": {
        "bench": "view_source",
        "level": "aligned_at",
        "rest": "last_boundary",
        "later": "follow_up",
        "has_later": "has_follow_up",
        "later_question": "follow_up_question",
    },
    "Parts": {"over": "overriding"},
    "Scenario": {"later": "follow_up", "acts_later": "follow_up_acts", "later_question": "follow_up_question"},
    "labengine_widgets": {"Bench": "ViewSource"},
}
"""Per class or module: old names, and the names that replace them."""

OLD_KEYWORDS: dict[str, dict[str, str]] = {
    "Comparison.__init__": {"later": "follow_ups", "later_question": "follow_up_question"},
}
"""Per function: old names of keywords, and the names that replace them."""


def with_old_names(cls: C) -> C:
    """Give a class its old attribute names; a subclass may define them, too. Use as a decorator."""
    names = OLD_NAMES[cls.__name__]
    for old, new in names.items():
        setattr(cls, old, _Alias(cls.__name__, old, new))
    type.__setattr__(cls, "__init_subclass__", classmethod(_adopting(cls, names)))
    return cls


def _adopting(owner: Any, names: dict[str, str]) -> Callable[..., None]:
    """Return an __init_subclass__ by which a definition under an old name stands under the new one."""

    def adopt(subclass: type, **keywords: Any) -> None:
        super(owner, subclass).__init_subclass__(**keywords)
        for old, new in names.items():
            if old in vars(subclass):
                _warn(owner.__name__, old, new)
                setattr(subclass, new, vars(subclass)[old])
                delattr(subclass, old)

    return adopt


def with_old_keywords(function: F) -> F:
    """Give a function its old names of keywords. Use as a decorator."""
    names = OLD_KEYWORDS[function.__qualname__]

    @wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        for old in keywords.keys() & names.keys():
            _warn(function.__qualname__, f"{old}=", f"{names[old]}=")
            keywords[names[old]] = keywords.pop(old)
        return function(*args, **keywords)

    return cast(F, call)


def new_name(module: str, name: str) -> str:
    """Return the new name of a module's attribute, with a warning; `name` itself where it is no old name."""
    new = OLD_NAMES[module].get(name)
    if new is None:
        return name
    _warn(module, name, new, callers=2)
    return new


class _Alias:
    """An attribute under its old name: reading and writing it reads and writes the new one."""

    def __init__(self, owner: str, old: str, new: str) -> None:
        self._owner, self._old, self._new = owner, old, new

    def __get__(self, instance: object, cls: type) -> Any:
        _warn(self._owner, self._old, self._new)
        return getattr(cls if instance is None else instance, self._new)

    def __set__(self, instance: object, value: object) -> None:
        _warn(self._owner, self._old, self._new)
        setattr(instance, self._new, value)


def _warn(owner: str, old: str, new: str, *, callers: int = 1) -> None:
    """callers: functions between the line that uses the name and this one."""
    warnings.warn(f"{owner}.{old} is now called {owner}.{new}", DeprecationWarning, stacklevel=callers + 2)
