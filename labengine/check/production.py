"""Production beside a user's parts: for each part, the class that its overrides replace, on the same state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from labengine.core.free_queue import FreeQueue
from labengine.core.journal import Journal
from labengine.core.part_methods import is_custom
from labengine.core.request import Request
from labengine.record.hooks import Hooks
from labengine.system.code_roles import passes_calls_on

_SOURCE = "_source_of_attributes"


class Production:
    """A core without overrides that reads the attributes of another core.

    Each part from outside labengine has a stand-in, an instance of the class below its overrides. The stand-in reads
    the part's own attributes, but sees other parts' stand-ins instead of the parts, so that no override is called.
    Asking changes nothing: attributes that a stand-in sets stay in it, its events have no listener, and its journal is
    rolled back. The free queue is itself the state, so it has no stand-in.
    """

    def __init__(self, parts: Iterable[Any], hooks: Hooks, journal: Journal) -> None:
        self._journal = Journal()
        self._seen: dict[int, object] = {id(hooks): Hooks(), id(journal): self._journal}
        self._originals = [part for part in parts if not isinstance(part, FreeQueue) and _bases(type(part))]
        for part in self._originals:
            cls: type = type(part)
            stand_in: Any = object.__new__(_class_below(cls))
            self._seen[id(part)] = stand_in
            vars(stand_in)[_SOURCE] = self, part

    @passes_calls_on
    def ask(self, part: object, method: str, arguments: Sequence[object], named: Mapping[str, object]) -> Any:
        """Return the decision of the class below a part's overrides, or raise its exception."""
        requests = [one for one in arguments if isinstance(one, Request)]
        before = [(one, one.block_hashes[:], one.links[:], one.prefixes[:]) for one in requests]
        try:
            seen = {name: self.seen(value) for name, value in named.items()}
            return getattr(self.seen(part), method)(*map(self.seen, arguments), **seen)
        finally:
            if self._journal:
                self._journal.rollback()
            for one, hashes, links, prefixes in before:
                one.block_hashes[:], one.links[:], one.prefixes[:] = hashes, links, prefixes
            self._forget()

    @passes_calls_on
    def value(self, part: object, name: str) -> Any:
        """Return an attribute's value in the class below a part's overrides."""
        try:
            return getattr(self.seen(part), name)
        finally:
            self._forget()

    def seen(self, value: object) -> object:
        """Return a value as stand-ins see it: a stand-in for a part, or a list of stand-ins for a list of parts."""
        found = self._seen.get(id(value))
        if found is not None:
            return found
        if type(value) in (list, tuple) and self._holds_parts(value):
            seen = map(self.seen, cast(Sequence[object], value))
            return list(seen) if type(value) is list else tuple(seen)
        return value

    def _holds_parts(self, value: Any) -> bool:
        if not value:
            return False
        first = value[0]
        return id(first) in self._seen or (type(first) in (list, tuple) and self._holds_parts(first))

    def _forget(self) -> None:
        """Drop what stand-ins have set: the next call reads the part's attributes again."""
        for part in self._originals:
            own = vars(self._seen[id(part)])
            if len(own) > 1:
                source = own[_SOURCE]
                own.clear()
                own[_SOURCE] = source


@passes_calls_on
def _read(stand_in: object, name: str) -> object:
    """Return an attribute of the part as stand-ins see it. Called if the class below has no such attribute."""
    if name == _SOURCE:
        raise AttributeError(name)
    production, part = vars(stand_in)[_SOURCE]
    return production.seen(getattr(part, name))


@lru_cache(maxsize=1024)
def _class_below(cls: type) -> type:
    """Return a class without the overrides whose instances read a part's attributes."""
    bases = _bases(cls)
    return type(bases[0].__name__, bases, {"__getattr__": _read, "__module__": bases[0].__module__})


def _bases(cls: type) -> tuple[type, ...]:
    """Return labengine's most derived classes below a class's overrides."""
    own = [one for one in cls.__mro__[:-1] if not is_custom(one)]
    return tuple(one for place, one in enumerate(own) if not any(issubclass(other, one) for other in own[:place]))
