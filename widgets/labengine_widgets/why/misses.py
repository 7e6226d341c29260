"""Why one block was not found: cached under another hash, evicted, or never registered."""

from __future__ import annotations

from typing import NamedTuple

from labengine import events as ev
from labengine.record.fold_state import Key
from labengine.record.wording import block_name, counted, hash_name, readable, request_name
from labengine_widgets.why.locks import Numbered
from labengine_widgets.why.map_entries import EntryChange, changes_of, end_of, registration_of
from labengine_widgets.why.past import Past
from labengine_widgets.why.prefixes import Equals, Lookup, Registration
from labengine_widgets.why.waiting import is_loading
from labengine_widgets.words.phrases import MAX_IMAGE, word

Image = tuple[int, int, str]
"""(position, length, identifier)."""


class Miss(NamedTuple):
    """Why a block was not found, in one or two sentences, and the numbers of the events that caused it."""

    sentence: str
    numbers: tuple[int, ...]


def where(lookup: Lookup, index: int, group: int) -> str:
    """Describe a block of the request by its positions."""
    size = lookup.state.groups[group].block_size
    return f"Its block {index} (positions {index * size} to {(index + 1) * size - 1})"


def forgotten_of(past: Past, lookup: Lookup, key: Key, index: int) -> Miss | None:
    """Explain a key that had left the map by the look-up; None if it was never registered."""
    changes = changes_of(past, key, lookup.number)
    last = next((change for change in reversed(changes) if isinstance(change.event, ev.BlockCached)), None)
    end = end_of(changes)
    if end is None or (last is not None and end.number < last.number):
        return None if last is None else _left_out(lookup, last, index)
    return _evicted(past, lookup, changes, end, key[0], index)


def _left_out(lookup: Lookup, last: EntryChange, index: int) -> Miss:
    assert isinstance(last.event, ev.BlockCached)
    text = f"{where(lookup, index, last.event.group)} was in {block_name(last.event.block_id)}, full and hashed, "
    return Miss(text + "but the map was not changed to lead to it.", (last.number,))


def _evicted(past: Past, lookup: Lookup, changes: list[EntryChange], end: EntryChange, group: int, index: int) -> Miss:
    own = registration_of((change for change in changes if change.number < end.number), _block(end))
    alive = _alive(lookup, changes)
    cause, numbers = _cause(past, lookup, end)
    text = f"{where(lookup, index, group)} had been in {block_name(_block(end))}, "
    text += f"which was evicted at event {end.number}: {cause}"
    overwriter = None
    if alive is not None:
        overwriter = next(
            (change for change in changes if change.number > alive.number and change.takes_from(_block(alive))), None
        )
        text += _lost(alive, overwriter)
    found = (change.number for change in (own, end, alive, overwriter) if change is not None)
    return Miss(text, tuple(sorted({*found, *numbers})))


def _cause(past: Past, lookup: Lookup, end: EntryChange) -> tuple[str, tuple[int, ...]]:
    """Return the reason for an eviction, and the number of the event that reused the block, if any."""
    reason = getattr(end.event, "reason", "reused")
    if reason != "reused":
        return f"{word('evicted', reason)}.", ()
    if held := past.at(end.number).ref_counts[_block(end)]:
        return f"{counted(held, 'table entry')} pointed to it, so it was not free.", ()
    for number, event in past.forwards(end.number + 1, lookup.number):
        if isinstance(event, ev.BlockAllocated) and event.block_id == _block(end):
            taker = request_name(event.request_id)
            return f"it was free and first in the queue, and {taker} needed a block.", (number,)
    return "it was free and first in the queue.", ()


def _alive(lookup: Lookup, changes: list[EntryChange]) -> EntryChange | None:
    """Return the registration of a referenced block that still holds the content, but that the map does not serve."""
    state = lookup.state
    for change in reversed(changes):
        event = change.event
        is_alive = state.ref_counts[event.block_id] > 0
        is_held = (
            isinstance(event, ev.BlockCached) and (event.group, event.block_hash) in state.block_keys[_block(change)]
        )
        if is_alive and is_held:
            return change
    return None


def _block(change: EntryChange) -> int:
    return change.event.block_id


def _lost(alive: EntryChange, overwriter: EntryChange | None) -> str:
    assert isinstance(alive.event, ev.BlockCached)
    text = f" {request_name(alive.event.request_id)}'s {block_name(_block(alive))} still held the same content"
    if overwriter is None:
        return f"{text}, but the map did not lead to it."
    overwritten = f"{block_name(_block(overwriter))} had overwritten its entry at event {overwriter.number}"
    return f"{text}, but the map did not lead to it: {overwritten}."


_SCHEDULED = (ev.SlotsWritten, ev.StateAdvanced, ev.ForwardRan, ev.StepEnded, ev.StepRolledBack, ev.StepStarted)
"""Kinds of events that come only after a step's scheduling."""


def never_registered(past: Past, lookup: Lookup, equals: Equals, group: int, index: int) -> Miss:
    """Explain a block that was never registered: another request may have had its tokens."""
    if not lookup.has_tokens:
        text = f"{where(lookup, index, group)} has no earlier registration in the recording, which has no token ids:"
        return Miss(f"{text} which requests have the same tokens is unknown.", ())
    holder = _holder(lookup, group, index)
    if holder is None:
        return _never_computed(past, lookup, group, index)
    after = [r.number for r in equals.after(group, index) if r.event.request_id == holder and r.event.mapped][:1]
    share = _share_of_step(past, lookup, holder)
    text, is_there = _how_far(past, lookup, holder, share, group, index)
    numbers = () if share is None else (share[0],)
    if after and not is_there:
        text += f" Its hash entered the map only at event {after[0]}, too late."
    return Miss(f"{where(lookup, index, group)} {text}", (*numbers, *after))


def _how_far(
    past: Past, lookup: Lookup, holder: int, share: Numbered | None, group: int, index: int
) -> tuple[str, bool]:
    """Return how much of the block its holder had computed, in words, and True if the block was complete."""
    size, name = lookup.state.groups[group].block_size, request_name(holder)
    request, end = lookup.state.requests[holder], (index + 1) * size
    if is_loading(Past(past.timeline, lookup.number), holder):
        return f"was being loaded for {name} from the external tier, and had not arrived.", False
    if request.num_computed_tokens >= end:
        block_id = request.block_tables[group][index]
        return _unregistered(past, lookup, holder, (group, index), block_id), True
    event = share[1] if share is not None else None
    last = event.start + event.num_tokens if isinstance(event, ev.RequestScheduled) else request.num_computed_tokens
    if last >= end:
        text = f"was to be computed by {name} in this very step, but had not been yet when {_asker(lookup)} looked."
        return text, False
    have = max(0, size - (end - last))
    text = (
        f"also belongs to {name}, but {name} has not computed all of it yet: {have} of {size} tokens after this step."
    )
    return text, False


def _unregistered(past: Past, lookup: Lookup, holder: int, place: tuple[int, int], block_id: int) -> str:
    """Explain why the look-up did not find a block that was computed completely. place: (group, index)."""
    (group, index), name = place, request_name(holder)
    keys = [key for key in lookup.state.block_keys[block_id] if key[0] == group]
    if any(block_id in lookup.state.prefix_map.get(key, ()) for key in keys):
        text = f"is in {name}'s {block_name(block_id)}, but under a different hash from {_asker(lookup)}'s: "
        return f"{text}{_apart(past, lookup, holder, group, index)}."
    if keys:
        return f"is in {name}'s {block_name(block_id)}, full and hashed, but the map did not lead to it."
    return f"had been computed by {name}, but its hash was not in the map: it was not registered."


def _asker(lookup: Lookup) -> str:
    return request_name(lookup.event.request_id)


def _holder(lookup: Lookup, group: int, index: int) -> int | None:
    """Return another request with the same tokens whose table has the block; None without one."""
    size, tokens = lookup.state.groups[group].block_size, lookup.token_ids
    end = (index + 1) * size
    for request_id, request in lookup.state.requests.items():
        table = request.block_tables[group]
        has_block = len(table) > index and table[index] != lookup.state.null_block
        if has_block and request_id != lookup.event.request_id and request.token_ids[:end] == tokens[:end]:
            return request_id
    return None


def _share_of_step(past: Past, lookup: Lookup, holder: int) -> Numbered | None:
    """Return the holder's RequestScheduled in the step of the look-up, before or after it; None without one."""
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


def _never_computed(past: Past, lookup: Lookup, group: int, index: int) -> Miss:
    """Explain a block that no request had computed, by the request with the longest common prefix."""
    place = where(lookup, index, group)
    end = (index + 1) * lookup.state.groups[group].block_size
    nearest, shared = _nearest(lookup, end)
    before = "" if past.is_complete else ", as far as the recording goes back"
    if nearest is None:
        return Miss(f"{place} had never been computed here{before}: no earlier request began with the same tokens.", ())
    joined = past.last(ev.RequestAdded, before=lookup.number, request_id=nearest)
    numbers = () if joined is None else (joined[0],)
    name = request_name(nearest)
    if shared >= end:
        had = _how_it_had_none(past, lookup, nearest, end)
        text = f"No request had computed i{place[1:]}{before}: {name} has the same tokens, but {had}."
        return Miss(text, numbers)
    text = f"{place} had never been computed here{before}: {name}'s first {counted(shared, 'token')} "
    text += f"{'is' if shared == 1 else 'are'} the same; they differ from position {shared} onward."
    return Miss(text, numbers)


def _how_it_had_none(past: Past, lookup: Lookup, request_id: int, end: int) -> str:
    """Return why a request with the same tokens does not have the block."""
    request = lookup.state.requests[request_id]
    if request.status == "finished":
        never = (
            "never put this block into the map"
            if past.is_complete
            else "the recording does not show it putting this block into the map"
        )
        return f"is finished, and {never}"
    if request.num_computed_tokens >= end:
        return "has moved on and no longer keeps this block"
    return "had not got that far" if any(request.block_tables) else "was still in the waiting queue"


def _nearest(lookup: Lookup, end: int) -> tuple[int | None, int]:
    """Return the other request with the longest common prefix, and the prefix's number of tokens."""
    nearest, longest = None, 0
    for request_id, request in lookup.state.requests.items():
        if request_id == lookup.event.request_id:
            continue
        pairs = zip(request.token_ids[:end], lookup.token_ids[:end], strict=False)
        shared = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(request.token_ids), end))
        if shared > longest:
            nearest, longest = request_id, shared
    return nearest, longest


def miss_of(past: Past, lookup: Lookup, equals: Equals, group: int, index: int) -> Miss:
    """Explain why the look-up did not find the request's block `index` of a group."""
    before = equals.before(group, index)
    own = equals.own_hash(group, index)
    named_so = [r for r in before if own is None or r.event.block_hash == own]
    if before and not named_so:
        return _other_name(past, lookup, before[-1], index)
    present = [r for r in named_so if r.key in lookup.state.prefix_map]
    if present:
        return _present(past, lookup, present[-1], index)
    key = named_so[-1].key if named_so else (group, own) if own is not None else None
    is_gone = key is not None and key not in lookup.state.prefix_map
    forgotten = forgotten_of(past, lookup, key, index) if key is not None and is_gone else None
    return forgotten or never_registered(past, lookup, equals, group, index)


def _apart(past: Past, lookup: Lookup, other: int, group: int, index: int) -> str:
    """Return what keeps a block of the look-up apart from the same block of another request with the same tokens."""
    end = (index + 1) * lookup.state.groups[group].block_size
    return _kept_apart(past, lookup.event.request_id, other, end)


def _other_name(past: Past, lookup: Lookup, other: Registration, index: int) -> Miss:
    event = other.event
    text = f"{where(lookup, index, event.group)} had been cached by {request_name(event.request_id)} with the same "
    text += (
        f"tokens, but under a different hash ({hash_name(event.block_hash)}): "
        f"{_apart(past, lookup, event.request_id, event.group, index)}."
    )
    return Miss(text, (other.number,))


def _present(past: Past, lookup: Lookup, found: Registration, index: int) -> Miss:
    event = found.event
    text = f"{where(lookup, index, event.group)} was in the map ({block_name(event.block_id)}, hash "
    text += f"{hash_name(event.block_hash)}), but was not used: {request_name(lookup.event.request_id)}'s hash "
    apart = _apart(past, lookup, event.request_id, event.group, index)
    text += f"was different ({apart}), or the engine compared the contents and found a difference."
    return Miss(text, (found.number,))


def _kept_apart(past: Past, asker: int, other: int, end: int) -> str:
    """Return why blocks of two requests' first `end` tokens have different hashes, as a clause."""
    ours, theirs = _images_of(past, asker, end), _images_of(past, other, end)
    if ours == theirs:
        return "a cache salt or an adapter keeps them apart"
    pairs = [(image, other, asker) for image in theirs if image not in ours]
    pairs += [(image, asker, other) for image in ours if image not in theirs]
    (start, _, name), owner, lacking = min(pairs)
    text = f"{request_name(owner)} has the image “{readable(name, MAX_IMAGE)}” at position {start}"
    return f"{text}, and {_instead(past, lacking, start, end)}"


def _instead(past: Past, request_id: int, position: int, end: int) -> str:
    there = [name for start, _, name in _images_of(past, request_id, end) if start == position]
    return f"{request_name(request_id)} has {f'“{readable(there[0], MAX_IMAGE)}”' if there else 'none'} there"


def _images_of(past: Past, request_id: int, end: int) -> tuple[Image, ...]:
    """Return the images that begin among a request's first `end` tokens; none where its arrival is not recorded."""
    added = past.last(ev.RequestAdded, request_id=request_id)
    return () if added is None else tuple(image for image in added[1].images if image[0] < end)
