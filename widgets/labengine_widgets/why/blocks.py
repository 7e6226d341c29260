"""Answers about blocks: why one is free, and why it has its place in the free queue."""

from __future__ import annotations

from labengine import events as ev
from labengine.record.wording import (
    block_name,
    block_names,
    counted,
    hash_name,
    listed,
    node_name,
    readable,
    request_name,
)
from labengine_widgets.why.answer import NO_ENGINE_YET, Link, Why, WhyError
from labengine_widgets.why.events import cause_of
from labengine_widgets.why.map_entries import why_lost
from labengine_widgets.why.past import Past
from labengine_widgets.why.references import holders_of, node_of, why_ref_count
from labengine_widgets.words.phrases import phrase


def why_block(past: Past, block_id: int) -> Why:
    """Answer the likeliest question about a block: why it is lost, shared or free."""
    if past.state.is_lost(block_id):
        return why_lost(past, block_id)
    if past.state.ref_counts[block_id]:
        return why_ref_count(past, block_id)
    return why_free(past, block_id)


# -- free --------------------------------------------------------------------------------------------------------------


def why_free(past: Past, block_id: int) -> Why:
    """Explain why a block is free: the last request that held it, and the content that it keeps."""
    state, name = past.state, block_name(block_id)
    question = f"Why is {name} free?"
    if block_id == state.null_block:
        return Why(question, f"{name} is set aside: it pads block tables and is never allocated.")
    if count := state.ref_counts[block_id]:
        holders = [request_name(i) for i in dict.fromkeys(place[0] for place in holders_of(past, block_id))]
        node_id = node_of(past, block_id)
        held = listed(holders if node_id is None else [*holders, f"{node_name(node_id)} of the prefix tree"])
        return Why(question, f"It is not free: its ref count is {count} (held by {held}).")
    number = last_freed(past, block_id)
    if number is None:
        return Why(question, f"{_never_held(past)} {_keeps(past, block_id)}", start_of(past, block_id))
    event = past.event(number)
    if isinstance(event, ev.BlockUnpinned):
        text = f"Its last reference, which no block table held, was dropped. {_keeps(past, block_id)}"
        return Why(question, text, past.links(number))
    if isinstance(event, ev.NodeEvicted):
        text = f"{phrase(event)} {_keeps(past, block_id)}"
        cause = cause_of(past, number) if event.reason == "reused" else None  # else in a step that was rolled back
        return Why(question, text, past.links(cause, number))
    assert isinstance(event, ev.BlockFreed)
    text = f"{request_name(event.request_id)} was the last to hold it, and {_let_go(event)}. {_keeps(past, block_id)}"
    return Why(question, text, tuple(_freed_links(past, number, event)))


def last_freed(past: Past, block_id: int) -> int | None:
    """Return the number of the event that queued a block; None if the block was queued from the beginning."""
    for number, event in past.backwards():
        is_freed = isinstance(event, ev.BlockFreed | ev.BlockUnpinned | ev.NodeEvicted) and event.queue_end
        if is_freed and block_id in ev.counted_blocks(event):
            return number
    return None


def _never_held(past: Past) -> str:
    if past.is_complete:
        return "No request has held it since the engine started."
    if (gap := past.gap) is not None:
        return f"No request has held it since the gap before step {gap.last_step + 1:,}: {gap}."
    return f"No request has held it since the recording began (event {past.first}); earlier events are unknown."


def start_of(past: Past, block_id: int) -> tuple[Link, ...]:
    """Return the first link for a block that is free from the beginning: the engine's start, or the recording's."""
    if past.is_complete:
        return past.links(0)
    return (past.start(f"When the recording begins, {block_name(block_id)} is free."),)


def _let_go(event: ev.BlockFreed) -> str:
    return {
        "finished": "finished",
        "aborted": "was aborted",
        "preempted": "was preempted because blocks ran out",
        "merged": "merged it into an equal block, so this copy was no longer needed",
        "pruned": "its beam was dropped, so it now shares another beam's blocks",
        "load_failed": "gave it back because its load failed",
        "state": "continues from a newer state",
        "window": "has moved on, so no later token's window reaches back to it",
    }.get(event.reason, readable(event.reason))


def _keeps(past: Past, block_id: int) -> str:
    keys = past.state.block_keys[block_id]
    if not keys:
        return "It holds no cached content."
    found = [key for key in keys if block_id in past.state.prefix_map.get(key, ())]
    tokens = counted(len(past.state.block_tokens[block_id]), "token")
    if not found:
        return f"It still holds {tokens}, but the map does not lead to it."
    return (
        f"It still holds {tokens}, and a look-up for hash {hash_name(found[0][1])} takes it back out of the free queue."
    )


def _freed_links(past: Past, number: int, event: ev.BlockFreed) -> list[Link]:
    """Return links to the cause of a free, to the free itself, and to later evictions of the block."""
    links = []
    together = (e for e in past.backwards(number) if not (type(e[1]) is ev.BlockFreed and e[1].reason == event.reason))
    before = next(together, None)
    if before is not None and isinstance(before[1], ev.EntryReplaced | ev.LoadFailed | ev.TokenSampled):
        links.append(past.link(before[0]))
    links.append(past.link(number))
    for at, ending in past.surviving(number + 1):
        if isinstance(ending, (ev.RequestFinished, ev.RequestPreempted)) and ending.request_id == event.request_id:
            if len(links) < 3 and event.reason in ("finished", "aborted", "preempted"):
                links.append(past.link(at))
        elif isinstance(ending, ev.BlockEvicted) and ending.block_id == event.block_id:
            links.append(past.link(at))
    return links


MAX_GONE = 6
"""Maximum number of links to blocks that were ahead and have left the queue; the last ones are kept."""


def why_next(past: Past) -> Why:
    """Explain why the head of the queue is the head."""
    if not past.state.ref_counts:
        raise WhyError(NO_ENGINE_YET.format(past.moment))
    head = next(iter(past.state.free_queue), None)
    if head is None:
        question = "Which block is next to be evicted?"
        leaf = _next_leaf(past)
        if leaf:
            return Why(question, f"No block is free: the next allocation evicts {leaf}")
        return Why(question, "None: no block is free. A request that needs one must preempt a running request.")
    return why_in_queue(past, head)


def why_in_queue(past: Past, block_id: int) -> Why:
    """Explain a block's place in the free queue."""
    queue = list(past.state.free_queue)
    if block_id not in past.state.free_queue:
        if past.state.ref_counts[block_id] or block_id == past.state.null_block:
            return why_free(past, block_id)
        raise WhyError(f"{block_name(block_id)} is free but not in the free queue")
    place = queue.index(block_id)
    put = last_freed(past, block_id)
    gone = _gone(past, block_id, put)
    links = [*_put_links(past, block_id, put), *(past.link(number) for number in gone[-MAX_GONE:])]
    return Why(_question(past, block_id, place), _answer(past, block_id, queue[:place], put, len(gone)), tuple(links))


def _question(past: Past, block_id: int, place: int) -> str:
    name = block_name(block_id)
    if place:
        return f"Why is {name} at this place in the free queue (number {place + 1})?"
    if past.taken_by:
        return f"Why is {name} at the head of the free queue?"
    return f"Why is {name} next to be {'evicted' if past.state.block_keys[block_id] else 'allocated'}?"


def _put_links(past: Past, block_id: int, put: int | None) -> tuple[Link, ...]:
    return start_of(past, block_id) if put is None else past.links(put)


def _gone(past: Past, block_id: int, put: int | None) -> list[int]:
    """Return the numbers of the events by which the blocks ahead of a block left the queue, in order."""
    since = _start(past) if put is None else put + 1
    ahead = set(_before(list(past.at(since).free_queue), block_id))
    numbers = []
    for number, event in past.surviving(since):
        match event:
            case ev.BlockAllocated() if event.block_id in ahead:
                pass
            case ev.BlockTouched(ref_count=1) | ev.BlockPinned(ref_count=1) if event.block_id in ahead:
                pass
            case ev.BlockCopied() if event.into_block_id in ahead:
                ahead.discard(event.into_block_id)
                numbers.append(number)
                continue
            case (
                ev.BlockFreed(queue_end="head") | ev.BlockUnpinned(queue_end="head") | ev.NodeEvicted(queue_end="head")
            ):
                ahead.update(ev.counted_blocks(event))
                continue
            case _:
                continue
        ahead.discard(event.block_id)
        numbers.append(number)
    return numbers


def _start(past: Past) -> int:
    """Return the first moment that has a queue."""
    return 1 if past.is_complete else past.first


def _before(queue: list[int], block_id: int) -> list[int]:
    return queue[: queue.index(block_id)] if block_id in queue else []


def _answer(past: Past, block_id: int, ahead: list[int], put: int | None, num_gone: int) -> str:
    text = _how_it_came(past, put)
    if num_gone:
        text += (
            f" Since then {counted(num_gone, 'block')} ahead of it {'has' if num_gone == 1 else 'have'} left the queue."
        )
    if ahead:
        return f"{text} {block_names(ahead)} {'is' if len(ahead) == 1 else 'are'} ahead of it."
    chosen = f" {past.taken_by} decides which block is taken." if past.taken_by else ""
    return f"{text} No block is ahead of it.{chosen} {_price(past, block_id)}"


def _how_it_came(past: Past, put: int | None) -> str:
    if put is None and past.is_complete:
        return "It has been free from the start, when the queue was in order of block ids."
    if put is None:
        begin = f"when the recording began (event {past.first})"
        return f"It was already in the free queue {begin}; earlier events are unknown."
    event = past.event(put)
    if isinstance(event, ev.NodeEvicted):
        return f"It was put at the {event.queue_end} of the queue when it was evicted from {node_name(event.node_id)}."
    assert isinstance(event, ev.BlockFreed | ev.BlockUnpinned)
    if event.queue_end == "head":
        why = "" if past.at(put).block_keys[event.block_id] else ", because it had no cached content"
        return f"It was put at the head of the queue when it was freed{why}."
    return "It was put at the tail of the queue when it was freed."


def _next_leaf(past: Past) -> str:
    """Return the node that is evicted next, in words; "" for none."""
    tree = past.state.tree
    leaf = tree.next_leaf()
    if leaf is None:
        return ""
    blocks = block_names(tree.nodes[leaf].block_ids)
    return f"{node_name(leaf)} with {blocks}: of the leaves without locks, it was used longest ago."


def _price(past: Past, block_id: int) -> str:
    keys = past.state.block_keys[block_id]
    found = [key for key in keys if block_id in past.state.prefix_map.get(key, ())]
    if found:
        return f"Its next allocation evicts {listed(f'hash {hash_name(key[1])}' for key in found)}."
    if leaf := _next_leaf(past):
        return f"It has no content to lose. Once no block is free, an allocation evicts {leaf}"
    victim = next((i for i in past.state.free_queue if past.state.block_keys[i]), None)
    if victim is None:
        return "It has no content to lose, and neither does any other free block."
    return f"It has no content to lose; the first free block that does is {block_name(victim)}."
