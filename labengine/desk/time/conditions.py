"""What a breakpoint waits for: a kind of event with certain fields, whatever a function says, or a violation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from labengine.config import ConfigError
from labengine.events import EVENT_KINDS, Event, ViolationFound

Test = Callable[[Event], object]

_BY_NAME = {kind.__name__: kind for kind in EVENT_KINDS}
VIOLATION = "violation"


@dataclass(frozen=True, slots=True)
class Condition:
    """True for events of some kinds whose fields have these values, and of which the test is true."""

    kinds: tuple[type[Event], ...]
    fields: Mapping[str, Any] = field(default_factory=dict)
    test: Test | None = None
    words: str = ""

    def is_met_by(self, event: Event) -> bool:
        """Whatever the test raises, it raises too."""
        if any(_plain(getattr(event, name)) != value for name, value in self.fields.items()):
            return False
        return self.test is None or bool(self.test(event))

    def __str__(self) -> str:
        return self.words


def condition(kind: type[Event] | str | Test | None, wanted: Mapping[str, Any]) -> Condition:
    """What `break_on(kind, **wanted)` means. TypeError for a kind, or a field, that there is not, by its name."""
    if kind is None or (not isinstance(kind, (type, str)) and callable(kind)):
        return _any_kind(kind, wanted)
    found = _kind(kind)
    known = [f.name for f in fields(found)]
    for name in wanted:
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise TypeError(f"{found.__name__} has no field {name!r}{_near(name, known) or f'; {has}'}")
    plain = {name: _plain(value) for name, value in wanted.items()}
    return Condition((found,), plain, None, _words(kind if isinstance(kind, str) else found.__name__, plain))


def _any_kind(test: Test | None, wanted: Mapping[str, Any]) -> Condition:
    """Any event that has these fields, or of which the test is true."""
    if test is not None:
        if wanted:
            raise TypeError(f"a test looks at the fields itself: leave {', '.join(wanted)} to it")
        return Condition(EVENT_KINDS, {}, test, f"{getattr(test, '__name__', repr(test))}(event)")
    kinds = tuple(kind for kind in EVENT_KINDS if wanted and wanted.keys() <= {f.name for f in fields(kind)})
    if not kinds:
        named = " and ".join(map(repr, wanted))
        told = f"no event has the field {named}" if wanted else "nothing to wait for was given"
        raise TypeError(f"{told}: break_on(labengine.events.BlockEvicted, block_id=3) waits for one event")
    plain = {name: _plain(value) for name, value in wanted.items()}
    return Condition(kinds, plain, None, _words("any event with", plain))


def _kind(kind: object) -> type[Event]:
    if kind == VIOLATION:
        return ViolationFound
    if isinstance(kind, str):
        if kind not in _BY_NAME:
            known = [VIOLATION, *_BY_NAME]
            hint = _near(kind, known) or f"; there are {', '.join(known)}"
            raise ConfigError(f"there is no event kind {kind!r}{hint}")
        return _BY_NAME[kind]
    if not isinstance(kind, type) or kind not in EVENT_KINDS:
        raise TypeError(f"{kind!r} is no event kind; see labengine.events, or name it: 'BlockEvicted'")
    return kind


def _near(name: str, known: list[str]) -> str:
    by_lower = {other.lower(): other for other in known}
    near = get_close_matches(name.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[near[0]]!r}?" if near else ""


def _plain(value: Any) -> Any:
    """Hashes may be given as hex; a row of numbers as any kind of row."""
    return value.hex() if isinstance(value, bytes) else tuple(value) if isinstance(value, (list, tuple)) else value


def _words(what: str, wanted: Mapping[str, Any]) -> str:
    return " ".join([what, *(f"{name}={value}" for name, value in wanted.items())])
