"""Why a block is as it is, and why it is free."""

from __future__ import annotations

from labengine import events as ev
from labengine_widgets.names import block_name, counted, listed, request_name
from labengine_widgets.why.answer import Link, Why
from labengine_widgets.why.lost import is_lost, why_lost
from labengine_widgets.why.past import Past
from labengine_widgets.why.references import holders_of, why_ref_count
from labengine_widgets.why.tellings import hash_name


def why_block(past: Past, block_id: int) -> Why:
    """The question a reader most likely has about it: lost, shared or free."""
    if is_lost(past, block_id):
        return why_lost(past, block_id)
    if past.state.ref_counts[block_id]:
        return why_ref_count(past, block_id)
    return why_free(past, block_id)


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
        return Why(question, f"{_never_held(past)} {_keeps(past, block_id)}", start_of(past, block_id))
    event = past.event(number)
    assert isinstance(event, ev.BlockFreed)
    told = f"{request_name(event.request_id)} was the last to hold it, and {_let_go(event)}. {_keeps(past, block_id)}"
    return Why(question, told, tuple(_freed_links(past, number, event)))


def last_freed(past: Past, block_id: int) -> int | None:
    """The number of the BlockFreed that put a block into the queue; None when it has been there from the beginning."""
    for number, event in past.backwards():
        if isinstance(event, ev.BlockFreed) and event.block_id == block_id and event.queue_end is not None:
            return number
    return None


def _never_held(past: Past) -> str:
    if past.is_whole:
        return "Nobody has held it since the engine started."
    return f"Nobody has held it since the recording begins (event {past.first}); what was before is not told."


def start_of(past: Past, block_id: int) -> tuple[Link, ...]:
    """The first link to a block that is free from the beginning: the engine's start, or the recording's."""
    if past.is_whole:
        return (past.link(0),)
    return (past.start(f"When the recording begins, {block_name(block_id)} is free."),)


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
