"""Methods of parts: the class that defines each, and whether the core can call it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cached_property, partial, partialmethod, singledispatchmethod
from inspect import Parameter, Signature
from types import FunctionType
from typing import Any

_GUARD = "_checks_the_answer_below"
_OWN = ("labengine.core.", "labengine.engine.", "labengine.check.")


def definers(owner: type, name: str) -> list[type]:
    """Return the classes that define `name`, the effective one first. Abstract methods do not count."""
    return [cls for cls in owner.__mro__[:-1] if name in vars(cls) and not _is_left_open(vars(cls)[name])]


def class_name(owner: type) -> str:
    """Return a class's name without the function in which it was defined."""
    return owner.__qualname__.rpartition("<locals>.")[2]


def is_custom(owner: type) -> bool:
    """Return True for a class outside labengine's own core, engine and checks."""
    return not owner.__module__.startswith(_OWN)


def is_own(bound: Callable[..., Any], method: Callable[..., Any]) -> bool:
    """Return True if a part's bound method is labengine's, neither overridden nor wrapped."""
    return getattr(bound, "__func__", None) is method


def marks_guard(method: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a method that only checks the result of the next class's method, which counts as the definition."""
    vars(method)[_GUARD] = True
    return method


def _is_left_open(value: object) -> bool:
    is_open = isinstance(value, FunctionType) and "NotImplementedError" in value.__code__.co_names
    return is_open or _GUARD in getattr(value, "__dict__", ())


_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_READ = (property, cached_property)
_BOUND = (staticmethod, classmethod, partialmethod, singledispatchmethod)


def shape_fault(name: str, override: object, original: object) -> str | None:
    """Return why `override` cannot replace `original`, as the end of a sentence; None if it can.

    Both are values from their classes' `vars()`.
    """
    if not is_method(original):
        return f"is a method, but {name} is read as an attribute: make it a property" if is_method(override) else None
    if not is_method(override):
        found = "a property" if isinstance(override, _READ) else "None" if override is None else "a plain value"
        return f"is {found}, but {name} is called as a method"
    if isinstance(override, partial):
        return f"is a functools.partial, but {name} receives self: make it a functools.partialmethod"
    if isinstance(original, classmethod) and not isinstance(override, (classmethod, staticmethod)):
        return f"is an instance method, but {name} is called on the class: add @classmethod"
    function: Any = getattr(override, "__func__", override)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return f"is async, but {name} is called without await, so it would never run"
    if inspect.isgeneratorfunction(function) and name != "__iter__":
        return f"contains yield, but {name} is called as a plain method, so it would never run"
    return _call_fault(override, original)


def signature_text(method: object) -> str:
    """Return a method's parameters as written in its source, without annotations."""
    try:
        function: Any = getattr(method, "__func__", method)
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return "(...)"
    plain = [parameter.replace(annotation=Parameter.empty) for parameter in signature.parameters.values()]
    return str(Signature(plain))


def is_method(value: object) -> bool:
    """Return True for a value that is called on an instance; False for properties, classes and plain values."""
    if isinstance(value, (*_READ, type)):
        return False
    return callable(value) or isinstance(value, _BOUND)


def _call_fault(override: object, original: object) -> str | None:
    if not isinstance(getattr(override, "__func__", override), FunctionType):
        return None  # of a built-in type, or not made by `def`: Python cannot tell its parameters
    taken = _bound(override)
    if taken is None:
        return "does not take self"
    for arguments, keywords in _calls(_bound(original, follow_wrapped=True)):
        try:
            taken.bind(*arguments, **keywords)
        except TypeError as error:
            return f"cannot be called that way: {error}"
    return None


def _calls(signature: Signature | None) -> Iterator[tuple[list[None], dict[str, None]]]:
    """Yield the shortest and the longest call that a signature allows. The core's calls lie between them."""
    parameters = [] if signature is None else list(signature.parameters.values())
    for used in ([p for p in parameters if p.default is Parameter.empty], parameters):
        keywords = [p.name for p in used if p.kind is Parameter.KEYWORD_ONLY]
        yield [None for p in used if p.kind in _POSITIONAL], dict.fromkeys(keywords)


def _bound(method: object, *, follow_wrapped: bool = False) -> Signature | None:
    """Return a method's parameters on an instance, without self. None for a method that takes no self.

    follow_wrapped: use the function that a decorator has wrapped.
    """
    function: Any = getattr(method, "__func__", method)
    signature = inspect.signature(function, follow_wrapped=follow_wrapped)
    if isinstance(method, staticmethod):
        return signature
    parameters = list(signature.parameters.values())
    if not parameters or parameters[0].kind is Parameter.KEYWORD_ONLY:
        return None
    return Signature(parameters if parameters[0].kind is Parameter.VAR_POSITIONAL else parameters[1:])
