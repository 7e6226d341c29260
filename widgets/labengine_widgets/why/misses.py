"""Why one block was not found: there under another name, forgotten, or never registered."""

from __future__ import annotations

from labengine_widgets.names import block_name, request_name
from labengine_widgets.why.forgotten import Miss, forgotten_of, where
from labengine_widgets.why.past import Past
from labengine_widgets.why.prefixes import Equals, Lookup, Registration
from labengine_widgets.why.tellings import hash_name
from labengine_widgets.why.unmade import never_registered


def miss_of(past: Past, lookup: Lookup, equals: Equals, group: int, index: int) -> Miss:
    """The cause for the request's block `index` of a group."""
    before = equals.before(group, index)
    own = equals.own_hash(group, index)
    named_so = [r for r in before if own is None or r.event.block_hash == own]
    if before and not named_so:
        return _other_name(lookup, before[-1], index)
    present = [r for r in named_so if r.key in lookup.state.prefix_map]
    if present:
        return _present(lookup, present[-1], index)
    key = named_so[-1].key if named_so else (group, own) if own is not None else None
    is_gone = key is not None and key not in lookup.state.prefix_map
    forgotten = forgotten_of(past, lookup, key, index) if key is not None and is_gone else None
    return forgotten or never_registered(past, lookup, equals, group, index)


def _other_name(lookup: Lookup, other: Registration, index: int) -> Miss:
    event = other.event
    told = f"{where(lookup, index, event.group)} had been cached by {request_name(event.request_id)} with the same "
    told += (
        f"tokens, but under another hash ({hash_name(event.block_hash)}): a cache salt or an adapter keeps them apart."
    )
    return Miss(told, (other.number,))


def _present(lookup: Lookup, found: Registration, index: int) -> Miss:
    event = found.event
    told = f"{where(lookup, index, event.group)} was in the map ({block_name(event.block_id)}, hash "
    told += (
        f"{hash_name(event.block_hash)}), and yet was not taken: the hash of {request_name(lookup.event.request_id)} "
    )
    told += (
        "was another (a cache salt or an adapter), or the engine compared what they stand for and found a difference."
    )
    return Miss(told, (found.number,))
