"""The history of a prefix map entry: why a hash leads to its blocks, and why a block is lost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from labengine import events as ev
from labengine.record.fold_state import Key
from labengine.record.wording import block_name, block_names, counted, hash_name, listed, request_name
from labengine_widgets.why.answer import Link, Why, WhyError
from labengine_widgets.why.past import Past
from labengine_widgets.why.references import holders_of


class EntryChange(NamedTuple):
    """A registration under the key, or the eviction of a block that had it."""

    number: int
    event: ev.BlockCached | ev.BlockEvicted
    before: tuple[int, ...]
    """The blocks that the map had under the key; look-ups get the first."""
    after: tuple[int, ...]

    @property
    def is_end(self) -> bool:
        """True for the eviction that took the key out of the map."""
        return bool(self.before) and not self.after

    def takes_from(self, block_id: int) -> bool:
        """True for a registration that took the entry away from a block that keeps its content."""
        return isinstance(self.event, ev.BlockCached) and block_id in self.before and block_id not in self.after


def changes_of(past: Past, key: Key, stop: int | None = None) -> list[EntryChange]:
    """Return all changes of a map entry up to a moment (by default the question's), oldest first."""
    changes: list[EntryChange] = []
    holders = {block_id for block_id, keys in enumerate(past.begin.block_keys) if key in keys}
    mapped = past.begin.prefix_map.get(key, ())
    for number, event in past.surviving(past.first, stop):
        if isinstance(event, ev.BlockCached) and (event.group, event.block_hash) == key:
            holders.add(event.block_id)
            after = event.mapped or mapped
        elif isinstance(event, ev.BlockEvicted) and event.block_id in holders:
            holders.discard(event.block_id)
            after = tuple(block_id for block_id in mapped if block_id != event.block_id)
        else:
            continue
        changes.append(EntryChange(number, event, mapped, after))
        mapped = after
    return changes


def end_of(changes: Iterable[EntryChange]) -> EntryChange | None:
    """Return the last eviction that removed the key from the map; None if the key was never in it, or never left."""
    return next((change for change in reversed(list(changes)) if change.is_end), None)


def registration_of(changes: Iterable[EntryChange], block_id: int) -> EntryChange | None:
    """Return the last registration of a block under the key."""
    own = (t for t in reversed(list(changes)) if isinstance(t.event, ev.BlockCached) and t.event.block_id == block_id)
    return next(own, None)


MAX_LINKS = 16


def why_hash(past: Past, key: Key) -> Why:
    """Explain a map entry by the registrations under its key and the evictions of blocks that had it."""
    mapped = past.state.prefix_map.get(key, ())
    changes = changes_of(past, key)
    question = f"Why does hash {hash_name(key[1])} lead to {block_names(mapped)}?"
    if not mapped:
        question = f"Why is hash {hash_name(key[1])} not in the map?"
    text = _here(past, key, mapped) if mapped else _gone(past, changes)
    links = past.links(*(change.number for change in changes[-MAX_LINKS:]))
    return Why(question, text, links)


def key_of(past: Past, asked: str | bytes) -> Key:
    """Return the key for bytes, "group:hex" or first hex digits. Raises WhyError if none or several match."""
    group, hex_digits = _parsed(asked)
    known = dict.fromkeys(past.state.prefix_map)
    known.update(dict.fromkeys((*past.begin.prefix_map, *_registered_keys(past))))
    fits = [key for key in known if key[1].hex().startswith(hex_digits) and group in (None, key[0])]
    if not fits:
        ever = "ever registered" if past.is_complete else "registered, as far as the recording goes back,"
        raise WhyError(f"no block was {ever} under hash {asked!r}; lab.snapshot().prefix_map lists the hashes")
    if len(fits) > 1:
        some = ", ".join(f"{key[0]}:{key[1].hex()[:16]}" for key in fits[:4])
        raise WhyError(
            f"{len(fits)} hashes begin with {asked!r} ({some} …): give more digits, or put the group before them"
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


def _registered_keys(past: Past) -> list[Key]:
    return [(event.group, event.block_hash) for _, event in past.backwards() if isinstance(event, ev.BlockCached)]


def _here(past: Past, key: Key, mapped: tuple[int, ...]) -> str:
    first, state = mapped[0], past.state
    holders = sum(first in table for request in state.requests.values() for table in request.block_tables)
    text = f"{block_name(first)} holds the content of this hash"
    text += f", and is held by {counted(holders, 'table entry')}"
    if not state.ref_counts[first]:
        text = f"{block_name(first)} is free, and holds the content of this hash: a look-up finds it until it is reused"
    if len(mapped) > 1:
        text += f". {counted(len(mapped) - 1, 'equal block')} {'is' if len(mapped) == 2 else 'are'} listed after it"
    lost = [i for i, keys in enumerate(state.block_keys) if key in keys and i not in mapped and state.ref_counts[i]]
    if lost:
        hold, them = ("holds", "it") if len(lost) == 1 else ("hold", "them")
        text += f". {block_names(lost)} {hold} the same content, in use, but no look-up finds {them}"
    return text + "."


def _gone(past: Past, changes: list[EntryChange]) -> str:
    if (end := end_of(changes)) is not None:
        return f"The last block it led to, {block_name(end.event.block_id)}, was evicted at event {end.number}."
    if past.is_complete:
        return "No registration put it into the map."
    return f"It has not been in the map since the recording began; if it ever was, it was {past.before}."


MAX_STORY_LINKS = 12
"""Maximum number of links; of a longer history, the first and the last changes are kept."""


def why_lost(past: Past, block_id: int) -> Why:
    """Explain which block took over a lost block's entry of the map."""
    name = block_name(block_id)
    if not past.state.is_lost(block_id):
        return Why(f"Why is {name} lost?", f"It is not lost: {_why_not_lost(past, block_id)}.")
    changes = changes_of(past, past.state.block_keys[block_id][0])
    own = registration_of(changes, block_id)
    story = [change for change in changes if change is own or _is_of_story(change, own)]
    holders = listed(request_name(i) for i in dict.fromkeys(place[0] for place in holders_of(past, block_id)))
    text = f"{holders} still {_reads(holders)} {name}, {_how_lost(past, story, own, block_id)}"
    return Why(f"Why is {name} lost?", text, tuple(_links(past, story, block_id)))


def _why_not_lost(past: Past, block_id: int) -> str:
    state = past.state
    if not state.ref_counts[block_id]:
        return "no request holds it"
    if not state.block_keys[block_id]:
        return "it is not full yet, so it has no hash yet"
    return "a look-up for its hash leads to it"


def _reads(holders: str) -> str:
    return "read" if " and " in holders else "reads"


def _is_of_story(change: EntryChange, own: EntryChange | None) -> bool:
    """Return True for a change of the entry after the block's own registration."""
    return (own is None or change.number > own.number) and change.before != change.after


def _how_lost(past: Past, story: list[EntryChange], own: EntryChange | None, block_id: int) -> str:
    if own is not None and block_id not in own.after:
        kept = block_names(own.after) if own.after else "nothing"
        return f"but the map never led to it: it kept {kept} instead."
    taker = next((change for change in story if change.takes_from(block_id)), None)
    if taker is None:
        return f"but no look-up finds it: its entry was removed from the map {past.before}."
    assert isinstance(taker.event, ev.BlockCached)
    text = f"but no new request can find it: {request_name(taker.event.request_id)} registered the same hash later, "
    return f"{text}and {block_name(taker.event.block_id)} overwrote the map's entry.{_since(story, taker)}"


def _since(story: list[EntryChange], taker: EntryChange) -> str:
    """Return a sentence on the entry's later changes; empty if it still leads to the taker's block."""
    leads_to, end = story[-1].after, end_of(story)
    if not leads_to and end is not None:
        return f" Since {block_name(end.event.block_id)} was evicted, the entry is gone altogether."
    return "" if taker.event.block_id in leads_to else f" Now it leads to {block_names(leads_to)}."


def _links(past: Past, story: list[EntryChange], block_id: int) -> list[Link]:
    if len(story) > MAX_STORY_LINKS:
        story = [*story[: MAX_STORY_LINKS // 2], *story[-MAX_STORY_LINKS // 2 :]]
    return [past.link(change.number, _taking(change, block_id)) for change in story]


def _taking(change: EntryChange, block_id: int) -> str | None:
    """Return a sentence on a registration that took over the entry; None where the event's own sentence suffices."""
    event = change.event
    if not isinstance(event, ev.BlockCached) or block_id in change.after or block_id == event.block_id:
        return None
    taker, key = f"{request_name(event.request_id)}'s {block_name(event.block_id)}", hash_name(event.block_hash)
    return f"{taker} overwrote the map's entry: hash {key} now leads to {block_names(change.after)}."
