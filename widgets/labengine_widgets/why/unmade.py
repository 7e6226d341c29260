"""A block that was not found for nobody had put it into the map: who was about to, and how far they had come."""

from __future__ import annotations

from labengine import events as ev
from labengine_widgets.names import block_name, counted, request_name
from labengine_widgets.why.forgotten import Miss, where
from labengine_widgets.why.past import Numbered, Past
from labengine_widgets.why.prefixes import Equals, Lookup
from labengine_widgets.why.waiting import is_loading

_SCHEDULED = (ev.SlotsWritten, ev.ForwardRan, ev.StepEnded, ev.StepRolledBack, ev.StepStarted)
"""With the first of these a step's scheduling is over."""


def never_registered(past: Past, lookup: Lookup, equals: Equals, group: int, index: int) -> Miss:
    """Nobody had put it into the map: did anybody have it?"""
    holder = _holder(lookup, group, index)
    if holder is None:
        return _nobody(past, lookup, group, index)
    after = [r.number for r in equals.after(group, index) if r.event.request_id == holder and r.event.mapped][:1]
    turn = _turn(past, lookup, holder)
    told, is_there = _how_far(past, lookup, holder, turn, group, index)
    numbers = () if turn is None else (turn[0],)
    if after and not is_there:
        told += f" Its hash came into the map at event {after[0]}, too late."
    return Miss(f"{where(lookup, index, group)} {told}", (*numbers, *after))


def _how_far(
    past: Past, lookup: Lookup, holder: int, turn: Numbered | None, group: int, index: int
) -> tuple[str, bool]:
    """How much of the block its holder has: in words, and whether that is all of it already."""
    size, name = lookup.state.groups[group].block_size, request_name(holder)
    request, end = lookup.state.requests[holder], (index + 1) * size
    if is_loading(Past(past.timeline, lookup.number), holder):
        return f"was being loaded for {name} from the external tier, and had not arrived.", False
    if request.num_computed_tokens >= end:
        return _unregistered(lookup, group, request.block_tables[group][index], name), True
    event = turn[1] if turn is not None else None
    last = event.start + event.num_tokens if isinstance(event, ev.RequestScheduled) else request.num_computed_tokens
    if last >= end:
        told = f"was to be computed by {name} in this very step, but was not yet when {_asker(lookup)} looked."
        return told, False
    have = max(0, size - (end - last))
    told = f"is {name}'s too, but {name} has not computed all of it yet: {have} of {size} tokens after this step."
    return told, False


def _unregistered(lookup: Lookup, group: int, block_id: int, name: str) -> str:
    """All of it is computed: what keeps the look-up from it?"""
    keys = [key for key in lookup.state.block_keys[block_id] if key[0] == group]
    if any(block_id in lookup.state.prefix_map.get(key, ()) for key in keys):
        told = f"is in {name}'s {block_name(block_id)}, but under another hash than {_asker(lookup)}'s: "
        return f"{told}a cache salt or an adapter keeps them apart."
    if keys:
        return f"is in {name}'s {block_name(block_id)}, full and hashed, but the map did not lead to it."
    return f"had been computed by {name}, but its hash was not in the map: it was not registered."


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


def _turn(past: Past, lookup: Lookup, holder: int) -> Numbered | None:
    """The holder's share of the step in which the look-up was made, whether before it or after."""
    for number, event in past.backwards(lookup.number):
        if isinstance(event, ev.RequestScheduled) and event.request_id == holder:
            return number, event
        if isinstance(event, ev.StepStarted):
            break
    for number, event in past.forwards(lookup.number + 1):
        if isinstance(event, ev.RequestScheduled) and event.request_id == holder:
            return number, event
        if isinstance(event, _SCHEDULED):
            break
    return None


def _nobody(past: Past, lookup: Lookup, group: int, index: int) -> Miss:
    """The nearest relative tells where the tokens part."""
    place = where(lookup, index, group)
    end = (index + 1) * lookup.state.groups[group].block_size
    nearest, shared = _nearest(lookup, end)
    before = "" if past.is_whole else ", as far as the recording goes back"
    if nearest is None:
        return Miss(
            f"{place} had never been computed here{before}: no request before it began with the same tokens.", ()
        )
    numbers = _joined(past, lookup, nearest)
    name = request_name(nearest)
    if shared >= end:
        had = _how_it_had_none(past, lookup, nearest, end)
        told = f"Nobody had computed i{place[1:]}{before}: {name} has the same tokens, but {had}."
        return Miss(told, numbers)
    told = f"{place} had never been computed here{before}: {name}'s first {counted(shared, 'token')} "
    told += f"{'is' if shared == 1 else 'are'} the same, and at position {shared} they part."
    return Miss(told, numbers)


def _how_it_had_none(past: Past, lookup: Lookup, request_id: int, end: int) -> str:
    """What became of a request that has the same tokens and not this block."""
    request = lookup.state.requests[request_id]
    if request.status == "finished":
        never = "never put this block into the map" if past.is_whole else "nobody saw it put this block into the map"
        return f"is finished, and {never}"
    if request.num_computed_tokens >= end:
        return "has moved on, and does not keep this block"
    return "had not come so far" if any(request.block_tables) else "was still in line"


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
