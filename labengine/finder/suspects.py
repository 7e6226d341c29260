"""The parts under suspicion, and the edition that they are compared with."""

from __future__ import annotations

import collections
import enum
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from types import CodeType, FunctionType, ModuleType
from typing import Any

from labengine.config import ConfigError, shown
from labengine.core.connector import Connector
from labengine.core.editions import EDITIONS, LABENGINE, edition
from labengine.core.parts import Parts
from labengine.core.seams import overrides
from labengine.core.waiting_queue import WaitingQueue
from labengine.session.patch.override import parts_with


@dataclass(frozen=True)
class Suspects:
    """The subject of a search. Sent to workers directly, since a forked process knows the classes of a notebook."""

    parts: Parts
    base: Parts | None
    """The edition whose decisions the parts replace: an error that it shares is not the override's fault. None for an
    edition itself, and for a search of a connector or a patched module."""
    reference: Parts
    """The edition with which the parts' decisions and costs are compared."""
    make_connector: Callable[[], Connector] | None = None
    module: ModuleType | None = None
    """A module that was patched in place."""

    @property
    def excusing(self) -> tuple[Parts, ...]:
        """Parts whose errors do not count against the suspects: their edition, and a user's reference."""
        is_own = self.reference is not self.parts and base_of(self.reference) is not None
        return tuple(one for one in (self.base, self.reference if is_own else None) if one is not None)

    @property
    def know_priorities(self) -> bool:
        """True if the waiting queue uses priorities."""
        return self.parts.waiting_queue.priority is not WaitingQueue.priority

    @property
    def overridden(self) -> frozenset[str]:
        """The names of the overridden methods."""
        return frozenset(one.method for one in overrides(self.parts))

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the module, which cannot be sent."""
        return {**vars(self), "module": None}


def suspects_of(wanted: object, against: str | Parts) -> Suspects:
    """Return the suspects for an argument of find(): an edition's name, Parts, a class, a connector, or a module.

    Classes that Parts leave out are those of `against`, or labengine's if that is Parts, too. A module must have been
    patched by the caller; the search then runs on the present production classes. Raises ConfigError for anything else.
    """
    reference = _completed(against, LABENGINE) if isinstance(against, Parts) else edition(against)
    if isinstance(wanted, ModuleType):
        name = f"{reference.name}, {wanted.__name__} patched"
        return Suspects(replace(reference, name=name), None, reference, module=wanted)
    if isinstance(wanted, type) and issubclass(wanted, Connector):
        return Suspects(reference, None, reference, wanted)
    if isinstance(wanted, Connector):
        raise ConfigError(
            f"a search needs many connectors: pass the class, or a function that makes one, not {wanted!r}"
        )
    parts = _parts_of(wanted, reference)
    if parts is None and callable(wanted):
        return Suspects(reference, None, reference, wanted)
    if parts is None:
        raise ConfigError(
            f"find() takes Parts, an edition's name, a class that replaces a part, a Connector's class, or a patched "
            f"module, got {shown(wanted)}"
        )
    return Suspects(parts, base_of(parts), reference)


def changed_in_place(module: ModuleType) -> tuple[str, ...]:
    """Return the functions and methods of a module that differ from its file, as Class.method."""
    text = inspect.getsource(module)
    of_the_file = dict(_codes(compile(text, str(module.__file__), "exec", dont_inherit=True)))
    functions = {name: one for name, one in vars(module).items() if name in of_the_file}
    for cls in vars(module).values():
        if isinstance(cls, type) and cls.__module__ == module.__name__:
            functions |= {f"{cls.__name__}.{name}": one for name, one in vars(cls).items() if not name.startswith("__")}
            functions |= {f"{cls.__name__}.__init__": vars(cls).get("__init__")}
    return tuple(
        name
        for name, function in functions.items()
        if isinstance(function, FunctionType) and _is_changed(inspect.unwrap(function).__code__, of_the_file)
    )


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner.co_qualname, inner
            yield from _codes(inner)


def _is_changed(code: CodeType, of_the_file: Mapping[str, CodeType]) -> bool:
    is_generated = code.co_filename.startswith("<") or code.co_filename in (enum.__file__, collections.__file__)
    return not is_generated and of_the_file.get(code.co_qualname) != code


def base_of(parts: Parts) -> Parts | None:
    """Return the edition that has the most of these classes, or the nearest ones; None for an edition."""
    names = [field.name for field in fields(Parts) if field.name != "name"]
    if any(all(getattr(parts, name) is getattr(one, name) for name in names) for one in EDITIONS.values()):
        return None
    return max(EDITIONS.values(), key=lambda one: _likeness(parts, one, names))


def _likeness(parts: Parts, one: Parts, names: list[str]) -> tuple[int, int]:
    """Return the sum over fields: 2 for the edition's class, 1 for a subclass of it.

    The second number breaks ties: minus the number of classes between each subclass and the edition's.
    """
    likeness = distance = 0
    for name in names:
        mine, its = getattr(parts, name), getattr(one, name)
        if issubclass(mine, its):
            likeness += 2 if mine is its else 1
            distance += mine.__mro__.index(its)
    return likeness, -distance


def _parts_of(wanted: object, reference: Parts) -> Parts | None:
    if isinstance(wanted, str):
        return edition(wanted)
    if isinstance(wanted, Parts):
        return _completed(wanted, reference)
    if isinstance(wanted, type):
        return parts_with(wanted, reference, ("full", "sliding_window", "state"))
    return None


def _completed(parts: Parts, edition: Parts) -> Parts:
    """Return parts with the edition's classes for missing ones; complete parts unchanged."""
    is_complete = all(getattr(parts, field.name) is not None for field in fields(Parts))
    return parts if is_complete else parts.overriding(edition)
