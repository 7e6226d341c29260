"""Why a hash leads where it leads: who registered it, and what took it away."""

from __future__ import annotations

from labengine import events as ev
from labengine.fold import Key
from labengine_widgets.names import block_name, counted
from labengine_widgets.why.answer import Why, WhyError
from labengine_widgets.why.entries import Turn, end_of, turns_of
from labengine_widgets.why.past import Past
from labengine_widgets.why.tellings import blocks, hash_name

MAX_LINKS = 16


def why_hash(past: Past, key: Key) -> Why:
    """The registrations under a key of the map, and the evictions of blocks that had it."""
    mapped = past.state.prefix_map.get(key, ())
    turns = turns_of(past, key)
    question = f"Why does hash {hash_name(key[1])} lead to {blocks(mapped)}?"
    if not mapped:
        question = f"Why is hash {hash_name(key[1])} not in the map?"
    told = _here(past, key, mapped) if mapped else _gone(past, turns)
    links = tuple(past.link(turn.number) for turn in turns[-MAX_LINKS:])
    return Why(question, told, links)


def key_of(past: Past, asked: str | bytes) -> Key:
    """The key that is meant by bytes, "group:hex" or the beginning of the hex. WhyError where none or several fit."""
    group, hex_digits = _parsed(asked)
    known = dict.fromkeys(past.state.prefix_map)
    known.update(dict.fromkeys((*past.begin.prefix_map, *_told_keys(past))))
    fits = [key for key in known if key[1].hex().startswith(hex_digits) and group in (None, key[0])]
    if not fits:
        ever = "ever registered" if past.is_whole else "registered, as far as the recording goes back,"
        raise WhyError(f"no block was {ever} under hash {asked!r}; lab.snapshot().prefix_map lists the hashes")
    if len(fits) > 1:
        some = ", ".join(f"{key[0]}:{key[1].hex()[:16]}" for key in fits[:4])
        raise WhyError(
            f"{len(fits)} hashes begin with {asked!r} ({some} …): give more digits, or the group before them"
        )
    return fits[0]


def _parsed(asked: str | bytes) -> tuple[int | None, str]:
    if isinstance(asked, bytes) and asked:
        return None, asked.hex()
    if not isinstance(asked, str):
        raise WhyError(f"a hash is bytes, 'group:hex', or the beginning of its hex digits; got {asked!r}")
    group, colon, digits = asked.removesuffix("…").rpartition(":")  # as the views print it
    if (colon and not group.isdecimal()) or not digits or set(digits.lower()) - set("0123456789abcdef"):
        raise WhyError(f"a hash is bytes, 'group:hex', or the beginning of its hex digits; got {asked!r}")
    return (int(group) if colon else None), digits.lower()


def _told_keys(past: Past) -> list[Key]:
    return [(event.group, event.block_hash) for _, event in past.backwards() if isinstance(event, ev.BlockCached)]


def _here(past: Past, key: Key, mapped: tuple[int, ...]) -> str:
    first, state = mapped[0], past.state
    holders = sum(first in table for request in state.requests.values() for table in request.block_tables)
    told = f"{block_name(first)} holds what the hash stands for"
    told += f", and is held by {counted(holders, 'table entry') if holders == 1 else f'{holders} table entries'}"
    if not state.ref_counts[first]:
        told = (
            f"{block_name(first)} is free, and still holds what the hash stands for: until it is reused it can be found"
        )
    if len(mapped) > 1:
        told += f". {counted(len(mapped) - 1, 'equal block')} {'stands' if len(mapped) == 2 else 'stand'} behind it"
    lost = [i for i, keys in enumerate(state.block_keys) if key in keys and i not in mapped and state.ref_counts[i]]
    if lost:
        told += f". {blocks(lost)} {'holds' if len(lost) == 1 else 'hold'} the same, alive, and cannot be found"
    return told + "."


def _gone(past: Past, turns: list[Turn]) -> str:
    if (end := end_of(turns)) is not None:
        return f"The last block that it led to, {block_name(end.event.block_id)}, was evicted at event {end.number}."
    if past.is_whole:
        return "The map was never led to it: another block was registered in its place."
    return f"The map has not led to it since the recording begins; if it ever did, that was {past.before}."
