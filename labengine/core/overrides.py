"""Refuse parts with methods that the core would never call, or could not: a misspelt seam, a wrong signature."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cached_property, partialmethod
from types import CodeType, FunctionType

from labengine.config import ConfigError
from labengine.core.part_methods import class_name, is_custom, is_method, shape_fault, signature_text

_NEAR = 0.8
"""Similarity from which a name counts as a misspelt seam: that of a five-letter name with two letters swapped."""
_MOST_DECORATORS = 100
_SPECIAL = ("__init__", "__len__", "__contains__", "__iter__")


def refuse_wrong_overrides(where: str, part: type, base: type, others: Iterable[type] = ()) -> None:
    """Raise ConfigError for the first definition in a user's class that cannot have its intended effect.

    where: the beginning of the message. base: the class whose part it plays. others: classes of other parts, whose
    methods are never called here. Any other name is allowed for a helper, and every name that the class's own methods
    use.
    """
    if not any(is_custom(cls) for cls in part.__mro__[:-1]):
        return
    for owner, name in _without_effect(part, base):
        if (meant := _meant(name, owner, part, base, others)) is not None:
            raise ConfigError(f"{where}: {class_name(owner)}.{name} overrides nothing in {base.__name__}; {meant}")
    for name in _names_of(base, part):
        definer, override = _definition(part, name)
        if definer is None or not is_custom(definer):
            _refuse_hidden(where, part, name, definer)
            continue
        original_owner, original = _original(part, base, name)
        if (fault := shape_fault(name, override, original)) is not None:
            own, seam = f"{class_name(definer)}.{name}", f"{original_owner.__name__}.{name}"
            raise ConfigError(
                f"{where}: {own}{_parameters(override)} {fault}; it overrides {seam}{_parameters(original)}"
            )


def _refuse_hidden(where: str, part: type, name: str, definer: type | None) -> None:
    """Refuse a user's definition that labengine's own hides: a mixin listed behind the class that it should change."""
    for cls in part.__mro__:
        if getattr(cls, "_is_protocol", False):
            continue  # its methods only declare those of others
        if _is_a_users(cls) and name in vars(cls) and definer is not None:
            raise ConfigError(
                f"{where}: {class_name(cls)}.{name} is never called: {definer.__name__} takes precedence in "
                f"{class_name(part)}: list {class_name(cls)} first among its bases"
            )


# -- names that override nothing ---------------------------------------------------------------------------------------


def _without_effect(part: type, base: type) -> Iterator[tuple[type, str]]:
    """Yield attributes of a user's classes that override nothing and that no other method of theirs uses."""
    for number, cls in enumerate(part.__mro__):
        if _is_a_users(cls):
            for name in vars(cls):
                is_new = not any(name in vars(other) for other in (*part.__mro__[number + 1 :], *base.__mro__))
                if is_new and not name.startswith("__") and name not in _used_names(part, but_in=name):
                    yield cls, name


def _is_a_users(cls: type) -> bool:
    return is_custom(cls) and cls.__module__.partition(".")[0] not in sys.stdlib_module_names


def _used_names(part: type, but_in: str) -> set[str]:
    used: set[str] = set()
    for cls in part.__mro__:
        for name, value in vars(cls).items():
            if is_custom(cls) and name != but_in:
                used.update(*map(_names_in, _codes(value)))
    return used


def _names_in(code: CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(_names_in, inner))


def _codes(value: object) -> Iterator[CodeType]:
    """Yield the code of a definition and of the functions that decorators have wrapped."""
    functions: list[object] = [value.fget, value.fset, value.fdel] if isinstance(value, property) else [value]
    for function in functions:
        if isinstance(function, (cached_property, partialmethod)):
            function = function.func
        for _ in range(_MOST_DECORATORS):  # wrong ones wrap themselves
            function = getattr(function, "__func__", function)
            if isinstance(code := getattr(function, "__code__", None), CodeType):
                yield code
            function = getattr(function, "__wrapped__", None)


def _meant(name: str, owner: type, part: type, base: type, others: Iterable[type]) -> str | None:
    """Return the seam that a name probably means, as the end of a sentence; None for a name without a near match."""
    is_called = is_method(vars(owner)[name])
    if (sibling := _sibling_with(name, base)) is not None:
        return f"{name} belongs to {sibling.__name__}, which {class_name(part)} does not inherit from"
    overridden = {other for cls in part.__mro__ if issubclass(cls, owner) for other in vars(cls)}
    seams = {_letters(seam): seam for seam in _seams(part, base, is_called=is_called) if seam not in overridden}
    if near := get_close_matches(_letters(name), seams, n=1, cutoff=_NEAR):
        return f"did you mean {seams[near[0]]}?"
    elsewhere = [other.__name__ for other in others if isinstance(vars(other).get(name), FunctionType)]
    return f"{name} is a method of {elsewhere[0]}" if elsewhere and is_called else None


def _sibling_with(name: str, base: type) -> type | None:
    """Return a class of labengine's for this part that defines the name."""
    subclasses: list[type] = base.__subclasses__()
    for own in subclasses:
        found = None if is_custom(own) else own if name in vars(own) else _sibling_with(name, own)
        if found is not None:
            return found
    return None


def _seams(part: type, base: type, *, is_called: bool) -> Iterator[str]:
    """Yield the names that can be overridden: methods if is_called, else attributes with plain values."""
    for seam in _names_of(base, part):
        original = _original(part, base, seam)[1]
        if is_method(original) if is_called else not isinstance(original, (FunctionType, property, cached_property)):
            yield seam


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


# -- definitions -------------------------------------------------------------------------------------------------------


def seam_names(part: type, base: type) -> set[str]:
    """Return the public names that the core uses on such a part, which an override may therefore replace."""
    return {name for name in _names_of(base, part) if name not in _SPECIAL}


def _names_of(base: type, part: type) -> list[str]:
    """Return the names that the core uses on such a part."""
    own = next((cls for cls in part.__mro__ if not is_custom(cls)), base)
    return [name for name in dict.fromkeys([*dir(base), *dir(own)]) if not name.startswith("_") or name in _SPECIAL]


def _definition(cls: type, name: str) -> tuple[type | None, object]:
    owner = next((one for one in cls.__mro__ if name in vars(one)), None)
    return owner, None if owner is None else vars(owner)[name]


def _original(part: type, base: type, name: str) -> tuple[type, object]:
    """Return the definition of a name that the part overrides, or the base's."""
    for cls in (*part.__mro__, *base.__mro__):
        if name in vars(cls) and not is_custom(cls):
            return cls, vars(cls)[name]
    return base, _takes_nothing if name == "__init__" else inspect.getattr_static(base, name)


def _takes_nothing(self: object) -> None:
    """Give the signature of a class without an __init__."""


def _parameters(value: object) -> str:
    return signature_text(value) if is_method(value) else ""
