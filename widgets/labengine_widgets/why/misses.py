"""Why one block was not found: never computed, computed later, not registered, overwritten, evicted, another name."""

from __future__ import annotations

from typing import NamedTuple

from labengine import events as ev
from labengine_widgets.names import block_name, counted, request_name
from labengine_widgets.why.past import Past
from labengine_widgets.why.prefixes import Equals, Lookup, Registration
from labengine_widgets.why.tellings import hash_name


class Miss(NamedTuple):
    """Why a block was not found, in a sentence or two, and the numbers of the events that made it so."""

    sentence: str
    numbers: tuple[int, ...]


def miss_of(past: Past, lookup: Lookup, equals: Equals, group: int, index: int) -> Miss:
    """The cause for the request's block `index` of a group."""
    before = equals.before(group, index)
    own = equals.own_hash(group, index)
    named_so = [r for r in before if own is None or r.event.block_hash == own]
    if before and not named_so:
        return _other_name(lookup, before[-1], index)
    if not before:
        return _not_registered(past, lookup, equals, group, index)
    present = [r for r in named_so if r.key in lookup.state.prefix_map]
    if present:
        return _present(lookup, present[-1], index)
    return _forgotten(past, lookup, named_so, index)


def _where(lookup: Lookup, index: int, group: int) -> str:
    size = lookup.state.groups[group].block_size
    return f"Its block {index} (positions {index * size} to {(index + 1) * size - 1})"


# -- there, under some name --------------------------------------------------------------------------------------------


def _other_name(lookup: Lookup, other: Registration, index: int) -> Miss:
    event = other.event
    told = f"{_where(lookup, index, event.group)} had been cached by {request_name(event.request_id)} with the same "
    told += (
        f"tokens, but under another hash ({hash_name(event.block_hash)}): a cache salt or an adapter keeps them apart."
    )
    return Miss(told, (other.number,))


def _present(lookup: Lookup, found: Registration, index: int) -> Miss:
    event = found.event
    told = f"{_where(lookup, index, event.group)} was in the map ({block_name(event.block_id)}, hash "
    told += (
        f"{hash_name(event.block_hash)}), and yet was not taken: the hash of {request_name(lookup.event.request_id)} "
    )
    told += (
        "was another (a cache salt or an adapter), or the engine compared what they stand for and found a difference."
    )
    return Miss(told, (found.number,))


# -- never there -------------------------------------------------------------------------------------------------------


def _not_registered(past: Past, lookup: Lookup, equals: Equals, group: int, index: int) -> Miss:
    """Nobody had put it into the map: did anybody have it?"""
    where = _where(lookup, index, group)
    holder = _holder(lookup, group, index)
    if holder is None:
        return _nobody(past, lookup, where, group, index)
    after = [r for r in equals.after(group, index) if r.event.request_id == holder and r.number < past.timeline.end]
    size = lookup.state.groups[group].block_size
    name, numbers = request_name(holder), _turn(past, lookup, holder) + tuple(r.number for r in after[:1])
    if lookup.state.requests[holder].num_computed_tokens >= (index + 1) * size:
        told = f"{where} had been computed by {name}, but its hash was not in the map: it was not registered."
        return Miss(told, numbers)
    told = f"{where} was to be computed by {name} in this very step, but was not yet when {_asker(lookup)} looked."
    if after:
        told += f" Its hash came into the map at event {after[0].number}, too late."
    return Miss(told, numbers)


def _asker(lookup: Lookup) -> str:
    return request_name(lookup.event.request_id)


def _holder(lookup: Lookup, group: int, index: int) -> int | None:
    """A request with the same tokens and a table that has the block already."""
    size, tokens = lookup.state.groups[group].block_size, lookup.token_ids
    end = (index + 1) * size
    for request_id, request in lookup.state.requests.items():
        table = request.block_tables[group]
        has_block = len(table) > index and table[index] != lookup.state.null_block
        if has_block and request_id != lookup.event.request_id and request.token_ids[:end] == tokens[:end]:
            return request_id
    return None


def _turn(past: Past, lookup: Lookup, holder: int) -> tuple[int, ...]:
    """The holder's last turn before the look-up."""
    for number, event in past.backwards(lookup.number):
        if isinstance(event, ev.RequestScheduled) and event.request_id == holder:
            return (number,)
    return ()


def _nobody(past: Past, lookup: Lookup, where: str, group: int, index: int) -> Miss:
    """The nearest relative tells where the tokens part."""
    end = (index + 1) * lookup.state.groups[group].block_size
    nearest, shared = _nearest(lookup, end)
    before = "" if past.first == 0 else ", as far as the recording goes back"
    if nearest is None:
        return Miss(
            f"{where} had never been computed here{before}: no request before it began with the same tokens.", ()
        )
    numbers = _joined(past, lookup, nearest)
    name = request_name(nearest)
    if shared >= end:
        request = lookup.state.requests[nearest]
        had = "had not come so far" if any(request.block_tables) else "was still in line"
        had = "is finished, and never put this block into the map" if request.status == "finished" else had
        told = f"Nobody had computed i{where[1:]}{before}: {name} has the same tokens, but {had}."
        return Miss(told, numbers)
    told = f"{where} had never been computed here{before}: {name}'s first {counted(shared, 'token')} "
    told += f"{'is' if shared == 1 else 'are'} the same, and at position {shared} they part."
    return Miss(told, numbers)


def _nearest(lookup: Lookup, end: int) -> tuple[int | None, int]:
    """The other request that shares the longest beginning, and how long it is."""
    nearest, longest = None, 0
    for request_id, request in lookup.state.requests.items():
        if request_id == lookup.event.request_id:
            continue
        pairs = zip(request.token_ids[:end], lookup.token_ids[:end], strict=False)
        shared = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(request.token_ids), end))
        if shared > longest:
            nearest, longest = request_id, shared
    return nearest, longest


def _joined(past: Past, lookup: Lookup, request_id: int) -> tuple[int, ...]:
    for number, event in past.backwards(lookup.number):
        if isinstance(event, ev.RequestAdded) and event.request_id == request_id:
            return (number,)
    return ()


# -- there once --------------------------------------------------------------------------------------------------------


def _forgotten(past: Past, lookup: Lookup, registered: list[Registration], index: int) -> Miss:
    """It had been in the map: who took it out."""
    last = registered[-1]
    evicted = _eviction(past, lookup, last)
    where = _where(lookup, index, last.event.group)
    if evicted is None:
        told = f"{where} was in {block_name(last.event.block_id)}, full and hashed, but the map was not led to it."
        return Miss(told, (last.number,))
    number, event = evicted
    told = f"{where} had been in {block_name(event.block_id)}, which was evicted at event {number}: "
    cause = _cause(past, lookup, number, event)
    alive = _alive(lookup, registered, last)
    told += cause[0] + _lost(alive, last)
    numbers = [last.number, number, *cause[1]]
    return Miss(told, tuple(sorted({*numbers, *([alive.number] if alive is not None else ())})))


def _eviction(past: Past, lookup: Lookup, last: Registration) -> tuple[int, ev.BlockEvicted] | None:
    """The last eviction, before the look-up, of a block that had the key since it was registered last."""
    for number, event in past.backwards(lookup.number):
        if number < last.number:
            break
        if isinstance(event, ev.BlockEvicted) and event.block_id in (last.event.mapped or (last.event.block_id,)):
            return number, event
    return None


def _cause(past: Past, lookup: Lookup, number: int, event: ev.BlockEvicted) -> tuple[str, tuple[int, ...]]:
    if event.reason == "reset":
        return "the whole cache was reset.", ()
    if event.reason == "distrusted":
        return "a broken step may have written to it.", ()
    if event.reason == "replaced":
        return "it goes by a longer prefix now.", ()
    for later, told in past.forwards(number + 1, lookup.number):
        if isinstance(told, ev.BlockAllocated) and told.block_id == event.block_id:
            taker = request_name(told.request_id)
            return f"it was free and first in the queue, and {taker} needed a block.", (later,)
    return "it was free and first in the queue.", ()


def _alive(lookup: Lookup, registered: list[Registration], last: Registration) -> Registration | None:
    """A block that still holds the content and is alive, though the map does not lead to it."""
    state = lookup.state
    for registration in reversed(registered):
        block_id = registration.event.block_id
        if state.ref_counts[block_id] and registration.key in state.block_keys[block_id]:
            return registration
    return None


def _lost(alive: Registration | None, last: Registration) -> str:
    if alive is None:
        return ""
    name, thief = block_name(alive.event.block_id), block_name(last.event.block_id)
    told = f" {request_name(alive.event.request_id)}'s {name} still held the same content"
    if alive.number == last.number:
        return f"{told}, but the map did not lead to it."
    return f"{told}, but the map did not lead to it: {thief} had taken its entry at event {last.number}."
