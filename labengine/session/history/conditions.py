"""The condition of a breakpoint: a kind of event with certain fields, a function of the event, or a violation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from labengine.config import ConfigError, as_int, checked_call, is_single_int, shown
from labengine.events import EVENT_KINDS, MAX_NUMBER, Event, ViolationFound, Whole
from labengine.record.files.shapes import PoolSize, shape_of
from labengine.session.settings import request_id_of

# -- values of fields, checked before a breakpoint waits for them ------------------------------------------------------


_REQUESTS = ("request_id", "request_ids")
_HASH = "block_hash"
_WORDS = {bool: "True or False", str: "a string", bytes: "a hash in hex digits", NoneType: "None"}


class Bounds(NamedTuple):
    """A lab's numbers of blocks and groups, and the length of its hashes."""

    pool: PoolSize
    num_hash_digits: int | None
    """None if a user's hash chain decides the length."""


def checked(kind: type[Event], wanted: Mapping[str, Any], bounds: Bounds) -> dict[str, Any]:
    """Return values that compare with `plain` ones. ConfigError for values that no event of the kind can have."""
    found = {name: _uniform(name, value) for name, value in _with_group(wanted).items()}
    hints = get_type_hints(kind, include_extras=True)
    for name, value in found.items():
        hint = _narrowest(hints[name])
        if not (_is_beginning(value) if name == _HASH else _fits(value, hint, bounds.pool)):
            said = _in_words(hint, bounds.pool)
            raise ConfigError(f"{name} of {kind.__name__} must be {said}, got {wanted.get(name, value)!r}")
    if len(found.get(_HASH, "")) > (num_digits := bounds.num_hash_digits or MAX_NUMBER):
        raise ConfigError(f"a hash must have at most {num_digits} hex digits, got {len(found[_HASH])}")
    return found


def is_wanted(name: str, value: Any, wanted: Any) -> bool:
    """Return True if an event's value is the wanted one; the first digits of a hash are enough."""
    value = plain(value)
    return bool(value.startswith(wanted) if name == _HASH else value == wanted)


def plain(value: Any) -> Any:
    """Return hashes as hex digits, and sequences as tuples."""
    if isinstance(value, (list, tuple)):
        return tuple(map(plain, value))
    return value.hex() if isinstance(value, bytes) else value


def _uniform(name: str, value: Any) -> Any:
    """Replace the letters of requests by their ids, and a printed hash by its digits."""
    if name == _HASH and isinstance(value, str):
        return value.lower().removesuffix("…")
    if name not in _REQUESTS:
        return plain(value)
    return tuple(map(request_id_of, value)) if isinstance(value, (list, tuple)) else request_id_of(value)


def _with_group(wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    """Split a hash with its group in front, "0:ab12", as the prefix map shows it."""
    group, colon, digits = str(wanted.get(_HASH)).rpartition(":")
    if not colon or not group.isdecimal():
        return wanted
    if wanted.get("group", int(group)) != int(group):
        raise ConfigError(f"{_HASH}={wanted[_HASH]!r} names group {group}, but group={wanted['group']!r} was given")
    return {**wanted, _HASH: digits, "group": int(group)}


def _narrowest(hint: Any) -> Any:
    """Return the Literal in a hint, without the other types that a recording may hold; without one, the hint."""
    return next((one for one in get_args(hint) if get_origin(one) is Literal and get_origin(hint) is Annotated), hint)


def _is_beginning(digits: Any) -> bool:
    return isinstance(digits, str) and bool(digits) and not set(digits) - set("0123456789abcdef")


def _fits(value: Any, hint: Any, pool: PoolSize) -> bool:
    """Return True for a plain value that a field of this type can have."""
    try:
        shape_of(hint).check((_as_json(value),), pool)
    except (TypeError, ValueError):
        return False
    return True


def _as_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(map(_as_json, value))
    return as_int(value) if is_single_int(value) else value


def _in_words(hint: Any, pool: PoolSize) -> str:
    """Describe a field's type for an error message."""
    inner = get_args(hint)
    if hint is int or get_origin(hint) is Annotated:
        return _number_in_words(Whole() if hint is int else inner[1], pool)
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(repr, inner))}"
    if get_origin(hint) is tuple and inner[-1] is Ellipsis:
        return f"a sequence, each item {_in_words(inner[0], pool)}"
    if get_origin(hint) is tuple:
        return f"({', '.join(_in_words(one, pool) for one in inner)})"
    return " or ".join(_in_words(one, pool) for one in inner) if inner else _WORDS[hint]


def _number_in_words(mark: Whole, pool: PoolSize) -> str:
    if not isinstance(mark.high, int):
        return f"a {mark.high[4:-1]}, {max(mark.low, 0)} to {getattr(pool, mark.high) - 1}"
    number = "a non-negative integer" if mark.low == 0 else "an integer"
    return f'{number}, such as 2 or "C"' if mark.role == "request" else number


# -- conditions --------------------------------------------------------------------------------------------------------


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

    TypeError for an unknown field; ConfigError for an unknown kind or an impossible value.
    """
    if kind is None or (not isinstance(kind, (type, str)) and callable(kind)):
        return _any_kind(kind, wanted, bounds)
    found = _kind(kind)
    known = [f.name for f in fields(found)]
    for name in wanted:
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has no fields"
            raise TypeError(f"{found.__name__} has no field {name!r}{_near(name, known) or f'; {has}'}")
    values = checked(found, wanted, bounds)
    return Condition((found,), values, None, _words(kind if isinstance(kind, str) else found.__name__, values))


def _any_kind(test: Test | None, wanted: Mapping[str, Any], bounds: Bounds) -> Condition:
    """Return the condition for events of any kind with these fields, or for which the test is true."""
    if test is not None:
        checked_call("kind", test, "event")
        if wanted:
            raise ConfigError(f"a test cannot be combined with fields: check {', '.join(wanted)} inside the test")
        return Condition(EVENT_KINDS, {}, test, f"{getattr(test, '__name__', repr(test))}(event)")
    kinds = tuple(kind for kind in EVENT_KINDS if wanted and wanted.keys() <= {f.name for f in fields(kind)})
    if not kinds:
        instead = "break_on(labengine.events.BlockEvicted, block_id=3) waits for one event"
        if not wanted:
            raise ConfigError(f"break_on() needs an event to wait for: {instead}")
        raise TypeError(f"no event has the field {' and '.join(map(repr, wanted))}: {instead}")
    possible = _possible(kinds, wanted, bounds)
    values = next(iter(possible.values()))
    return Condition(tuple(possible), values, None, _words("any event with", values))


def _possible(kinds: Iterable[type[Event]], wanted: Mapping[str, Any], bounds: Bounds) -> dict[type[Event], Any]:
    """Return the kinds whose fields can have these values, each with the values. ConfigError without any."""
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
            hint = _near(kind, known) or f"; the kinds are {', '.join(known)}"
            raise ConfigError(f"no event kind {shown(kind)}{hint}")
        return _BY_NAME[kind]
    if not isinstance(kind, type) or kind not in EVENT_KINDS:
        raise ConfigError(f"kind must be a class in labengine.events or its name, 'BlockEvicted', got {shown(kind)}")
    return kind


def _near(name: str, known: list[str]) -> str:
    by_lower = {other.lower(): other for other in known}
    near = get_close_matches(name.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[near[0]]!r}?" if near else ""


def _words(what: str, wanted: Mapping[str, Any]) -> str:
    return " ".join([what, *(f"{name}={value}" for name, value in wanted.items())])
