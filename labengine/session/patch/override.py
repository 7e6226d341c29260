"""One override over the parts of a lab: a class of a part, or a function named like a seam."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import update_wrapper
from types import FunctionType, new_class
from typing import Any

from labengine.config import ConfigError, shown
from labengine.core.part_methods import class_name, is_custom
from labengine.core.parts import Parts, field_of
from labengine.session.patch.seams import AmbiguousSeamError, find_seam

PREFIX = "Patched"
"""The prefix of names of classes made from one method."""


def parts_with(override: object, parts: Parts, kinds: Collection[str]) -> Parts:
    """Return complete parts with one override: a class, a function named like a seam, or Parts unchanged.

    kinds: the kinds of the lab's KV-cache groups. Raises ConfigError for any other override, or one that cannot work.
    """
    match override:
        case Parts():
            return override.overriding(parts)
        case type():
            return with_classes(parts, class_name(override), {field_of(override): override})
        case FunctionType():
            return _with_function(override, parts, kinds)
    raise ConfigError(f"an override must be a part's subclass or a function named after a seam, got {shown(override)}")


def with_classes(parts: Parts, name: str, classes: Mapping[str, type]) -> Parts:
    """Return the parts with these classes, by field, instead of theirs. name: the override's, for the title."""
    replaced: dict[str, Any] = {"name": f"{parts.name} + {name}", **classes}
    return replace(parts, **replaced)


def lost_overrides(cls: type, in_use: type) -> list[str]:
    """Return the definitions of the class in use that a user's class, which does not derive from it, loses."""
    own = {name for base in cls.__mro__ if is_custom(base) for name in vars(base)}
    missing = [base for base in in_use.__mro__[:-1] if base not in cls.__mro__]
    names = ((base, name) for base in missing for name in vars(base) if not name.startswith("_"))
    return [f"{class_name(base)}.{name}" for base, name in names if name not in own]


def patched_name(base: type) -> str:
    """Return the name for a class with one method replaced: PatchedBlockPool; with a number for a second patch."""
    own = [cls for cls in base.__mro__ if not cls.__name__.startswith(PREFIX) or not is_custom(cls)]
    number = len(base.__mro__) - len(own) + 1
    return f"{PREFIX}{own[0].__name__}{number if number > 1 else ''}"


def _with_function(function: FunctionType, parts: Parts, kinds: Collection[str]) -> Parts:
    try:
        seam = find_seam(function.__name__, parts, kinds)
    except AmbiguousSeamError as error:
        hint = f"Choose one with a class: make {function.__name__} a method of a subclass"
        raise ConfigError(f"{error} {hint}") from None
    code = function.__code__
    if "super" in code.co_names and "__class__" not in code.co_freevars:
        raise ConfigError(
            f"{seam.name} calls super(), which works only inside a class: use {seam}(self, ...), or make it a method "
            f"of a subclass"
        )
    classes = {field: _subclass(getattr(parts, field), function) for field in seam.fields}
    return with_classes(parts, seam.name, classes)


def _subclass(base: type, function: FunctionType) -> type:
    name = patched_name(base)
    method = _renamed(function, f"{name}.{function.__name__}")
    members = {method.__name__: method, "__module__": method.__module__}
    return new_class(name, (base,), exec_body=lambda namespace: namespace.update(members))


def _renamed(function: FunctionType, qualname: str) -> FunctionType:
    """Return the function under a new qualified name, which a traceback and a failed step report."""
    code = function.__code__.replace(co_qualname=qualname)
    renamed = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    update_wrapper(renamed, function)
    del vars(renamed)["__wrapped__"]
    renamed.__kwdefaults__, renamed.__qualname__ = function.__kwdefaults__, qualname
    return renamed
