"""Why a block is lost: who took its entry of the map away, and what became of the entry."""

from __future__ import annotations

from labengine import events as ev
from labengine_widgets.names import block_name, listed, request_name
from labengine_widgets.why.answer import Link, Why
from labengine_widgets.why.entries import Turn, end_of, registration_of, turns_of
from labengine_widgets.why.past import Past
from labengine_widgets.why.references import holders_of
from labengine_widgets.why.tellings import blocks, hash_name

MAX_LINKS = 12
"""Of a longer story the first half and the last are links."""


def is_lost(past: Past, block_id: int) -> bool:
    """True for a block that is alive and hashed, and that no look-up leads to."""
    state = past.state
    keys = state.block_keys[block_id]
    is_mapped = any(block_id in state.prefix_map.get(key, ()) for key in keys)
    return bool(state.ref_counts[block_id] and keys and not is_mapped)


def why_lost(past: Past, block_id: int) -> Why:
    """Who took its entry of the map away."""
    name = block_name(block_id)
    if not is_lost(past, block_id):
        return Why(f"Why is {name} lost?", f"It is not lost: {_why_not_lost(past, block_id)}.")
    turns = turns_of(past, past.state.block_keys[block_id][0])
    own = registration_of(turns, block_id)
    story = [turn for turn in turns if turn is own or _is_told(turn, own)]
    holders = listed(request_name(i) for i in dict.fromkeys(place[0] for place in holders_of(past, block_id)))
    told = f"{holders} still {_reads(holders)} {name}, {_how_lost(past, story, own, block_id)}"
    return Why(f"Why is {name} lost?", told, tuple(_links(past, story, block_id)))


def _why_not_lost(past: Past, block_id: int) -> str:
    state = past.state
    if not state.ref_counts[block_id]:
        return "nobody holds it"
    if not state.block_keys[block_id]:
        return "it is not full yet, so it has no hash that anybody could look for"
    return "a look-up for its hash leads to it"


def _reads(holders: str) -> str:
    return "read" if " and " in holders else "reads"


def _is_told(turn: Turn, own: Turn | None) -> bool:
    """What changed the entry since the block's own registration."""
    return (own is None or turn.number > own.number) and turn.before != turn.after


def _how_lost(past: Past, story: list[Turn], own: Turn | None, block_id: int) -> str:
    if own is not None and block_id not in own.after:
        kept = blocks(own.after) if own.after else "nothing"
        return f"but the map was never led to it: it kept {kept} instead."
    taker = next((turn for turn in story if turn.turns_from(block_id)), None)
    if taker is None:
        return f"but no look-up finds it: its entry of the map was taken away {past.before}."
    assert isinstance(taker.event, ev.BlockCached)
    told = f"but nobody new can find it: {request_name(taker.event.request_id)} registered the same hash later, "
    return f"{told}and {block_name(taker.event.block_id)} took the map's entry.{_since(story, taker)}"


def _since(story: list[Turn], taker: Turn) -> str:
    """What became of the entry after it was taken."""
    leads_to, end = story[-1].after, end_of(story)
    if not leads_to and end is not None:
        return f" Since {block_name(end.event.block_id)} was evicted, the entry is gone altogether."
    return "" if taker.event.block_id in leads_to else f" Now it leads to {blocks(leads_to)}."


def _links(past: Past, story: list[Turn], block_id: int) -> list[Link]:
    if len(story) > MAX_LINKS:
        story = [*story[: MAX_LINKS // 2], *story[-MAX_LINKS // 2 :]]
    return [past.link(turn.number, _taking(turn, block_id)) for turn in story]


def _taking(turn: Turn, block_id: int) -> str | None:
    """What a registration did to the block's entry; None where the event's own sentence says enough."""
    event = turn.event
    if not isinstance(event, ev.BlockCached) or block_id in turn.after or block_id == event.block_id:
        return None
    taker, key = f"{request_name(event.request_id)}'s {block_name(event.block_id)}", hash_name(event.block_hash)
    return f"{taker} took the map's entry: hash {key} leads to {blocks(turn.after)} now."
