"""Blame: the event behind a contradiction, and the method that decided it (violations of the rule `said`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from labengine import events as ev
from labengine.check.contradictions import Contradiction
from labengine.core.connector import Connector
from labengine.core.parts import Parts
from labengine.core.seams import decider_among, deciding_methods, is_in_table, override_of, overrides
from labengine.record.violation import Violation


class NumberedEvent(NamedTuple):
    """An event with its number in the recording."""

    number: int
    event: ev.Event


class Suspects(NamedTuple):
    """The classes that decide in one engine."""

    parts: Parts
    connector: type[Connector]


class Blamed(NamedTuple):
    """A violation, and the number of the event that caused it."""

    violation: Violation
    first_event: int


def blame(one: Contradiction, recent: Sequence[NumberedEvent], suspects: Suspects) -> Blamed | None:
    """Blame the newest of these events that changed the contradicted fact. Returns None if none did."""
    numbered = last_about(one, recent)
    if numbered is None:
        return None
    by = _by(numbered, suspects)
    text = f"event {numbered.number} ({kind_of(numbered)}) says that {one.claimed}; {one.actual}{by}"
    return _blamed(one, text, numbered.number)


def without_blame(one: Contradiction, number: int, suspects: Suspects) -> Blamed:
    """Return a violation for a change of the core without an event."""
    text = f"according to the events {one.claimed}; {one.actual}, and no event says so{all_overrides(suspects)}"
    return _blamed(one, text, number)


def blame_journal(one: Contradiction, recent: Sequence[NumberedEvent], number: int, suspects: Suspects) -> Blamed:
    """Return a violation for a fact that a rollback did not restore. `recent`: the events of the rolled-back step."""
    numbered = last_about(one, recent)
    by = all_overrides(suspects) if numbered is None else _by(numbered, suspects)
    return _blamed(one, f"after the rollback the events say that {one.claimed}; {one.actual}{by}", number)


def blame_order(numbered: NumberedEvent, suspects: Suspects) -> Blamed:
    """Return a violation for an event that cannot follow those before it."""
    request_id, block_id = getattr(numbered.event, "request_id", None), getattr(numbered.event, "block_id", None)
    by = _by(numbered, suspects)
    text = f"event {numbered.number} ({kind_of(numbered)}) cannot follow the earlier events{by}"
    return Blamed(_violation(text, request_id, block_id), numbered.number)


def last_about(one: Contradiction, recent: Sequence[NumberedEvent]) -> NumberedEvent | None:
    """Return the newest of these events that changed this fact."""
    is_about = _ABOUT[one.about]
    return next((numbered for numbered in reversed(recent) if is_about(numbered.event, one)), None)


def kind_of(numbered: NumberedEvent) -> str:
    """Return the name of the event's kind."""
    return type(numbered.event).__name__


def _blamed(one: Contradiction, text: str, number: int) -> Blamed:
    fact = one.about, one.claimed, one.actual
    return Blamed(replace(_violation(text, one.request_id, one.block_id), fact=fact), number)


def _violation(text: str, request_id: int | None, block_id: int | None) -> Violation:
    request_ids = () if request_id is None else (request_id,)
    return Violation("said", text, request_ids, () if block_id is None else (block_id,))


def override_words(methods: Sequence[str], suspects: Suspects) -> str:
    """Return the first override among these methods; all overrides if there is none, or if another may have decided."""
    override = override_of(suspects.parts, methods, suspects.connector)
    return all_overrides(suspects) if override is None or _unknown(suspects) else f" ({override})"


def decided_words(methods: Sequence[str], suspects: Suspects) -> str:
    """Return the overrides that may have decided, as `override_words`; without any, the deciding method."""
    decides = decider_among(suspects.parts, methods, suspects.connector)
    return override_words(methods, suspects) or ("" if decides is None else f" ({decides})")


def _by(numbered: NumberedEvent, suspects: Suspects) -> str:
    return decided_words(deciding_methods(numbered.event), suspects)


def _unknown(suspects: Suspects) -> bool:
    """Return True if the table of deciding methods lacks an overridden method."""
    return any(not is_in_table(one.method) for one in overrides(*suspects))


def all_overrides(suspects: Suspects) -> str:
    """Return all overrides of the parts and the tier, as " (overridden: ...)"; empty for none."""
    names = ", ".join(map(str, overrides(*suspects)))
    return f" (overridden: {names})" if names else ""


# -- the events that change each kind of fact --------------------------------------------------------------------------


def _counts_block(event: ev.Event, one: Contradiction) -> bool:
    return one.block_id in ev.counted_blocks(event)


def _changes_keys(event: ev.Event, one: Contradiction) -> bool:
    return isinstance(event, (ev.BlockCached, ev.BlockEvicted)) and event.block_id == one.block_id


def _changes_map(event: ev.Event, one: Contradiction) -> bool:
    if isinstance(event, ev.BlockCached):
        return (event.group, event.block_hash) == one.key
    return isinstance(event, ev.BlockEvicted) and event.block_id == one.block_id


def _changes_table(event: ev.Event, one: Contradiction) -> bool:
    if isinstance(event, ev.BlockFreed) and event.reason in ev.ENTRY_REPLACED:
        return False
    if isinstance(event, (*_ENDS, ev.BlocksSkipped, ev.BlockMoved)):
        return event.request_id == one.request_id
    return one.entry is not None and ev.changed_entry(event) == (one.request_id, *one.entry)


def _of_request(*kinds: type[ev.Event]) -> Callable[[ev.Event, Contradiction], bool]:
    return lambda event, one: isinstance(event, kinds) and getattr(event, "request_id", None) == one.request_id


def _of_node(*kinds: type[ev.Event]) -> Callable[[ev.Event, Contradiction], bool]:
    return lambda event, one: isinstance(event, kinds) and one.node_id in ev.nodes_of(event)


_ENDS = (ev.RequestPreempted, ev.RequestFinished)
_ABOUT: dict[str, Callable[[ev.Event, Contradiction], bool]] = {
    "ref_count": _counts_block,
    "queue": _counts_block,
    "order": _counts_block,
    "keys": _changes_keys,
    "map": _changes_map,
    "table": _changes_table,
    "drafts": _of_request(ev.TokensDrafted, ev.DraftsJudged, ev.RequestScheduled, *_ENDS),
    "computed": _of_request(ev.TokensComputed, ev.PrefixHit, ev.RequestForked, ev.BeamReplaced, ev.ExternalHit, *_ENDS),
    "status": _of_request(ev.RequestScheduled, ev.RequestForked, ev.ExternalHit, ev.RequestAdded, *_ENDS),
    "tokens": _of_request(ev.TokenSampled, ev.BeamReplaced, ev.RequestAdded),
    "request": _of_request(ev.RequestAdded, ev.RequestForgotten),
    "node": _of_node(ev.NodeInserted, ev.NodeSplit, ev.NodeEvicted),
    "locks": lambda event, one: isinstance(event, (ev.NodeLocked, ev.NodeUnlocked)),
    "hold": _of_request(ev.NodeLocked, ev.NodeUnlocked),
    "recency": _of_node(ev.NodesTouched, ev.NodeInserted, ev.NodeSplit),
}
"""Per kind of fact (contradictions.ABOUT): a predicate for the events that change it."""
