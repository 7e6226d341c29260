"""A block that was not found though it had been in the map: who took it out, and who still holds the same."""

from __future__ import annotations

from typing import NamedTuple

from labengine import events as ev
from labengine.fold import Key
from labengine_widgets.names import block_name, request_name
from labengine_widgets.why.entries import Turn, end_of, registration_of, turns_of
from labengine_widgets.why.past import Past
from labengine_widgets.why.prefixes import Lookup


class Miss(NamedTuple):
    """Why a block was not found, in a sentence or two, and the numbers of the events that made it so."""

    sentence: str
    numbers: tuple[int, ...]


def where(lookup: Lookup, index: int, group: int) -> str:
    """A block of the request that looked, by its positions."""
    size = lookup.state.groups[group].block_size
    return f"Its block {index} (positions {index * size} to {(index + 1) * size - 1})"


def forgotten_of(past: Past, lookup: Lookup, key: Key, index: int) -> Miss | None:
    """For a key that the map did not have at the look-up; None where it had never been registered."""
    turns = turns_of(past, key, lookup.number)
    last = next((turn for turn in reversed(turns) if isinstance(turn.event, ev.BlockCached)), None)
    end = end_of(turns)
    if end is None or (last is not None and end.number < last.number):
        return None if last is None else _left_out(lookup, last, index)
    return _evicted(past, lookup, turns, end, key[0], index)


def _left_out(lookup: Lookup, last: Turn, index: int) -> Miss:
    assert isinstance(last.event, ev.BlockCached)
    told = f"{where(lookup, index, last.event.group)} was in {block_name(last.event.block_id)}, full and hashed, "
    return Miss(told + "but the map was not led to it.", (last.number,))


def _evicted(past: Past, lookup: Lookup, turns: list[Turn], end: Turn, group: int, index: int) -> Miss:
    own = registration_of((turn for turn in turns if turn.number < end.number), _block(end))
    alive = _alive(lookup, turns)
    cause, numbers = _cause(past, lookup, end)
    told = f"{where(lookup, index, group)} had been in {block_name(_block(end))}, "
    told += f"which was evicted at event {end.number}: {cause}"
    thief = None
    if alive is not None:
        thief = next((turn for turn in turns if turn.number > alive.number and turn.turns_from(_block(alive))), None)
        told += _lost(alive, thief)
    found = (turn.number for turn in (own, end, alive, thief) if turn is not None)
    return Miss(told, tuple(sorted({*found, *numbers})))


def _cause(past: Past, lookup: Lookup, end: Turn) -> tuple[str, tuple[int, ...]]:
    """Why that block was forgotten, and the event that took it."""
    reason = getattr(end.event, "reason", "reused")
    if reason in _TOLD:
        return _TOLD[reason], ()
    for later, told in past.forwards(end.number + 1, lookup.number):
        if isinstance(told, ev.BlockAllocated) and told.block_id == _block(end):
            taker = request_name(told.request_id)
            return f"it was free and first in the queue, and {taker} needed a block.", (later,)
    return "it was free and first in the queue.", ()


_TOLD = {
    "reset": "the whole cache was reset.",
    "distrusted": "a broken step may have written to it.",
    "replaced": "it goes by a longer prefix now.",
}


def _alive(lookup: Lookup, turns: list[Turn]) -> Turn | None:
    """The registration of a block that still holds the content and is alive, though the map does not lead to it."""
    state = lookup.state
    for turn in reversed(turns):
        event = turn.event
        is_alive = state.ref_counts[event.block_id] > 0
        is_held = (
            isinstance(event, ev.BlockCached) and (event.group, event.block_hash) in state.block_keys[_block(turn)]
        )
        if is_alive and is_held:
            return turn
    return None


def _block(turn: Turn) -> int:
    return turn.event.block_id


def _lost(alive: Turn, thief: Turn | None) -> str:
    assert isinstance(alive.event, ev.BlockCached)
    told = f" {request_name(alive.event.request_id)}'s {block_name(_block(alive))} still held the same content"
    if thief is None:
        return f"{told}, but the map did not lead to it."
    taken = f"{block_name(_block(thief))} had taken its entry at event {thief.number}"
    return f"{told}, but the map did not lead to it: {taken}."
