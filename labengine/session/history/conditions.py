"""The condition of a breakpoint: a kind of event with certain fields, a function of the event, or a violation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from labengine.config import ConfigError, checked_call, shown
from labengine.events import EVENT_KINDS, Event, ViolationFound
from labengine.session.history.field_values import Bounds, checked, is_wanted

Test = Callable[[Event], object]

_BY_NAME = {kind.__name__: kind for kind in EVENT_KINDS}
VIOLATION = "violation"


@dataclass(frozen=True, slots=True)
class Condition:
    """A test of events: their kind, the values of their fields, and a function. words: the condition as text."""

    kinds: tuple[type[Event], ...]
    fields: Mapping[str, Any] = field(default_factory=dict)
    test: Test | None = None
    words: str = ""

    def is_met_by(self, event: Event) -> bool:
        """Return True if an event meets the condition. Raises what the function raises."""
        if not all(is_wanted(name, getattr(event, name), value) for name, value in self.fields.items()):
            return False
        return self.test is None or bool(self.test(event))

    def __str__(self) -> str:
        return self.words


def condition(kind: type[Event] | str | Test | None, wanted: Mapping[str, Any], bounds: Bounds) -> Condition:
    """Return the condition of `break_on(kind, **wanted)` in a lab with these bounds.

    TypeError for a field that does not exist; ConfigError for a kind that does not, and for an impossible value.
    """
    if kind is None or (not isinstance(kind, (type, str)) and callable(kind)):
        return _any_kind(kind, wanted, bounds)
    found = _kind(kind)
    known = [f.name for f in fields(found)]
    for name in wanted:
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise TypeError(f"{found.__name__} has no field {name!r}{_near(name, known) or f'; {has}'}")
    values = checked(found, wanted, bounds)
    return Condition((found,), values, None, _words(kind if isinstance(kind, str) else found.__name__, values))


def _any_kind(test: Test | None, wanted: Mapping[str, Any], bounds: Bounds) -> Condition:
    """Return the condition for events of any kind that have these fields, or of which the test is true."""
    if test is not None:
        checked_call("kind", test, "event")
        if wanted:
            raise ConfigError(f"a test looks at the fields itself: leave {', '.join(wanted)} to it")
        return Condition(EVENT_KINDS, {}, test, f"{getattr(test, '__name__', repr(test))}(event)")
    kinds = tuple(kind for kind in EVENT_KINDS if wanted and wanted.keys() <= {f.name for f in fields(kind)})
    if not kinds:
        instead = "break_on(labengine.events.BlockEvicted, block_id=3) waits for one event"
        if not wanted:
            raise ConfigError(f"nothing to wait for was given: {instead}")
        raise TypeError(f"no event has the field {' and '.join(map(repr, wanted))}: {instead}")
    possible = _possible(kinds, wanted, bounds)
    values = next(iter(possible.values()))
    return Condition(tuple(possible), values, None, _words("any event with", values))


def _possible(kinds: Iterable[type[Event]], wanted: Mapping[str, Any], bounds: Bounds) -> dict[type[Event], Any]:
    """Return the kinds whose fields can have these values, each with the values. ConfigError when there is none."""
    possible: dict[type[Event], Any] = {}
    refusals: list[ConfigError] = []
    for kind in kinds:
        try:
            possible[kind] = checked(kind, wanted, bounds)
        except ConfigError as refusal:
            refusals.append(refusal)
    if not possible:
        raise refusals[0]
    return possible


def _kind(kind: object) -> type[Event]:
    if kind == VIOLATION:
        return ViolationFound
    if isinstance(kind, str):
        if kind not in _BY_NAME:
            known = [VIOLATION, *_BY_NAME]
            hint = _near(kind, known) or f"; there are {', '.join(known)}"
            raise ConfigError(f"there is no event kind {shown(kind)}{hint}")
        return _BY_NAME[kind]
    if not isinstance(kind, type) or kind not in EVENT_KINDS:
        raise ConfigError(f"{shown(kind)} is no event kind; see labengine.events, or name it: 'BlockEvicted'")
    return kind


def _near(name: str, known: list[str]) -> str:
    by_lower = {other.lower(): other for other in known}
    near = get_close_matches(name.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[near[0]]!r}?" if near else ""


def _words(what: str, wanted: Mapping[str, Any]) -> str:
    return " ".join([what, *(f"{name}={value}" for name, value in wanted.items())])
