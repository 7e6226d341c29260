"""Why a block is lost, and why it is free."""

from __future__ import annotations

from labengine import events as ev
from labengine.fold import Key
from labengine_widgets.names import block_name, counted, listed, request_name
from labengine_widgets.why.answer import Link, Why
from labengine_widgets.why.past import Past
from labengine_widgets.why.references import holders_of, why_ref_count
from labengine_widgets.why.tellings import blocks, hash_name


def why_block(past: Past, block_id: int) -> Why:
    """The question a reader most likely has about it: lost, shared or free."""
    if is_lost(past, block_id):
        return why_lost(past, block_id)
    if past.state.ref_counts[block_id]:
        return why_ref_count(past, block_id)
    return why_free(past, block_id)


def is_lost(past: Past, block_id: int) -> bool:
    """True for a block that is alive and hashed, and that no look-up leads to."""
    state = past.state
    keys = state.block_keys[block_id]
    is_mapped = any(block_id in state.prefix_map.get(key, ()) for key in keys)
    return bool(state.ref_counts[block_id] and keys and not is_mapped)


# -- lost --------------------------------------------------------------------------------------------------------------


def why_lost(past: Past, block_id: int) -> Why:
    """Who took its entry of the map away."""
    name = block_name(block_id)
    if not is_lost(past, block_id):
        return Why(f"Why is {name} lost?", f"It is not lost: {_why_not_lost(past, block_id)}.")
    key = past.state.block_keys[block_id][0]
    story = _entry_story(past, key, block_id)
    holders = listed(request_name(i) for i in dict.fromkeys(place[0] for place in holders_of(past, block_id)))
    links = tuple(past.link(number, _taking(event, block_id)) for number, event in story)
    return Why(f"Why is {name} lost?", f"{holders} still {_reads(holders)} {name}, {_how_lost(story, block_id)}", links)


def _taking(event: ev.BlockCached | ev.BlockEvicted, block_id: int) -> str | None:
    """What a registration did to the block's entry; None where the event's own sentence says enough."""
    if not isinstance(event, ev.BlockCached) or block_id in event.mapped or block_id == event.block_id:
        return None
    taker, key = f"{request_name(event.request_id)}'s {block_name(event.block_id)}", hash_name(event.block_hash)
    return f"{taker} took the map's entry: hash {key} leads to {blocks(event.mapped)} now."


def _reads(holders: str) -> str:
    return "read" if " and " in holders else "reads"


def _why_not_lost(past: Past, block_id: int) -> str:
    state = past.state
    if not state.ref_counts[block_id]:
        return "nobody holds it"
    if not state.block_keys[block_id]:
        return "it is not full yet, so it has no hash that anybody could look for"
    return "a look-up for its hash leads to it"


def _entry_story(past: Past, key: Key, block_id: int) -> list[tuple[int, ev.BlockCached | ev.BlockEvicted]]:
    """The registrations under a key since the block's own, and the evictions of blocks registered since."""
    story: list[tuple[int, ev.BlockCached | ev.BlockEvicted]] = []
    for number, event in past.backwards():
        if isinstance(event, ev.BlockCached) and (event.group, event.block_hash) == key:
            story.append((number, event))
            if event.block_id == block_id:
                break
        elif isinstance(event, ev.BlockEvicted):
            story.append((number, event))
    story.reverse()
    since = {event.block_id for _, event in story if isinstance(event, ev.BlockCached)}
    return [(n, event) for n, event in story if isinstance(event, ev.BlockCached) or event.block_id in since][:12]


def _how_lost(story: list[tuple[int, ev.BlockCached | ev.BlockEvicted]], block_id: int) -> str:
    own = next((e for _, e in story if isinstance(e, ev.BlockCached) and e.block_id == block_id), None)
    taker = next((e for _, e in story if isinstance(e, ev.BlockCached) and block_id not in e.mapped), None)
    if own is None or taker is None:
        return "but no look-up finds it: its entry of the map was taken away before the recording begins."
    if taker is own:
        return f"but the map was never led to it: it kept {blocks(own.mapped) if own.mapped else 'nothing'} instead."
    told = f"but nobody new can find it: {request_name(taker.request_id)} registered the same hash later, "
    told += f"and {block_name(taker.block_id)} took the map's entry."
    if any(isinstance(e, ev.BlockEvicted) for _, e in story):
        told += f" Since {block_name(taker.block_id)} was given away, the entry is gone altogether."
    return told


# -- free --------------------------------------------------------------------------------------------------------------


def why_free(past: Past, block_id: int) -> Why:
    """Who let go of it last, and what it keeps."""
    state, name = past.state, block_name(block_id)
    question = f"Why is {name} free?"
    if block_id == state.null_block:
        return Why(question, f"{name} is set aside: it pads block tables, and is never given away.")
    if count := state.ref_counts[block_id]:
        holders = listed(request_name(i) for i in dict.fromkeys(place[0] for place in holders_of(past, block_id)))
        return Why(question, f"It is not free: its ref count is {count} (held by {holders}).")
    number = last_freed(past, block_id)
    if number is None:
        begin = "since the engine started" if past.first == 0 else "since before the recording begins"
        return Why(question, f"Nobody has held it {begin}. {_keeps(past, block_id)}", _start(past))
    event = past.event(number)
    assert isinstance(event, ev.BlockFreed)
    told = f"{request_name(event.request_id)} was the last to hold it, and {_let_go(event)}. {_keeps(past, block_id)}"
    return Why(question, told, tuple(_freed_links(past, number, event)))


def last_freed(past: Past, block_id: int) -> int | None:
    """The number of the BlockFreed that put a block into the queue; None when it has been there from the start."""
    for number, event in past.backwards():
        if isinstance(event, ev.BlockFreed) and event.block_id == block_id and event.queue_end is not None:
            return number
    return None


def _start(past: Past) -> tuple[Link, ...]:
    is_told = past.first == 0 and past.moment > 0 and isinstance(past.event(0), ev.EngineStarted)
    return (past.link(0),) if is_told else ()


def _let_go(event: ev.BlockFreed) -> str:
    return {
        "finished": "finished",
        "aborted": "was aborted",
        "preempted": "was preempted for want of room",
        "merged": "was turned to an equal block, so that this copy was not needed",
        "window": "has moved on: no later token's window reaches back to it",
    }.get(event.reason, event.reason)


def _keeps(past: Past, block_id: int) -> str:
    keys = past.state.block_keys[block_id]
    if not keys:
        return "It holds nothing that anybody could find."
    found = [key for key in keys if block_id in past.state.prefix_map.get(key, ())]
    tokens = counted(len(past.state.block_tokens[block_id]), "token")
    if not found:
        return f"It still holds {tokens}, but the map does not lead to it."
    return (
        f"It still holds {tokens}, and whoever looks for hash {hash_name(found[0][1])} takes it back out of the queue."
    )


def _freed_links(past: Past, number: int, event: ev.BlockFreed) -> list[Link]:
    """Why it let go, that it did, and what was forgotten since."""
    links = []
    together = (e for e in past.backwards(number) if not (type(e[1]) is ev.BlockFreed and e[1].reason == event.reason))
    before = next(together, None)
    if before is not None and isinstance(before[1], (ev.BlockMerged, ev.LoadFailed, ev.TokenSampled)):
        links.append(past.link(before[0]))
    links.append(past.link(number))
    for later, told in past.surviving(number + 1):
        if isinstance(told, (ev.RequestFinished, ev.RequestPreempted)) and told.request_id == event.request_id:
            if len(links) < 3 and event.reason in ("finished", "aborted", "preempted"):
                links.append(past.link(later))
        elif isinstance(told, ev.BlockEvicted) and told.block_id == event.block_id:
            links.append(past.link(later))
    return links
