"""The cause of a block's ref count: the touches, merges and frees since its last allocation."""

from __future__ import annotations

from typing import NamedTuple

from labengine import events as ev
from labengine.record.wording import block_name, counted, entry_name, listed, node_name, request_name
from labengine_widgets.why.answer import Link, Why
from labengine_widgets.why.past import Past
from labengine_widgets.words.phrases import phrase

MAX_LINKS = 24
"""Maximum number of links in a chain; of a longer one, the ends are kept."""


class Reference(NamedTuple):
    """An event that changes a block's ref count."""

    number: int
    event: ev.Event
    ref_count: int
    """The ref count after the event."""

    @property
    def place(self) -> tuple[int, int, int]:
        """(request id, group, index) of the table entry; -1 each for a reference that no table holds."""
        return ev.changed_entry(self.event) or (-1, -1, -1)


class Life(NamedTuple):
    """A block's references since it was last free, in order; `base` counts those older than the recording."""

    base: int
    references: tuple[Reference, ...]
    begins_in_recording: bool


def life_of(past: Past, block_id: int) -> Life:
    """Return all changes of a block's ref count since it was last free, up to the moment."""
    found: list[Reference] = []
    for number, event in past.backwards():
        count = _count_after(past, number, block_id, event)
        if count is None:
            continue
        if ev.is_loss(event) and count == 0:
            return Life(0, tuple(found[::-1]), True)
        found.append(Reference(number, event, count))
        is_taken = count == 1 and not ev.is_loss(event) and not isinstance(event, ev.EntryReplaced)
        if is_taken or isinstance(event, ev.BlockCopied):
            return Life(0, tuple(found[::-1]), True)
    counts = past.at(past.first).ref_counts
    base = counts[block_id] if block_id < len(counts) else 0
    return Life(base, tuple(found[::-1]), base == 0)


def _count_after(past: Past, number: int, block_id: int, event: ev.Event) -> int | None:
    """Return the block's ref count after an event that changes it; None for any other event."""
    if block_id not in ev.counted_blocks(event):
        return None
    if isinstance(event, ev.NodeInserted | ev.NodeEvicted):
        return past.at(number + 1).ref_counts[block_id]
    return getattr(event, "ref_count", 1 + getattr(event, "is_pinned", False))


def why_ref_count(past: Past, block_id: int) -> Why:
    """Explain a ref count by its chain of touches, merges and frees, whose changes add up to the count."""
    count, name = past.state.ref_counts[block_id], block_name(block_id)
    question = f"Why is {name}'s ref count {count}?"
    if block_id == past.state.null_block:
        return Why(question, f"{name} is the null block: the table entries that point to it are not counted.")
    life = life_of(past, block_id)
    links, before = [], life.base
    if life.base:
        text = f"When the recording begins, {name} has ref count {life.base}."
        links.append(past.start(text).with_change(life.base))
    for reference in life.references:
        links.append(_link(past, reference, reference.ref_count - before))
        before = reference.ref_count
    return Why(question, _answer(past, block_id, life), _shortened(links, life))


def _link(past: Past, reference: Reference, change: int) -> Link:
    text: str = phrase(reference.event)
    expected = -1 if ev.is_loss(reference.event) else 1
    if isinstance(reference.event, ev.BlockCopied):
        expected += reference.event.is_pinned
    if change != expected:
        found = "a reference that no table holds" if change > expected else "a table entry that is not counted"
        text += f" That is {expected:+d}, but the count changed by {change or 'nothing'}: {found}."
    return past.link(reference.number, text, change)


def _shortened(links: list[Link], life: Life) -> tuple[Link, ...]:
    """Shorten a long chain: leave out references that were dropped again, and summarise the middle."""
    if len(links) <= MAX_LINKS:
        return tuple(links)
    gone = _come_and_gone(life)
    kept = [link for link in links if link.event_number not in gone]
    if len(kept) > MAX_LINKS:
        middle = kept[MAX_LINKS // 2 : -MAX_LINKS // 2]
        text = f"… {counted(len(middle), 'more change')} of the count, one after another."
        together = Link(middle[-1].moment, middle[-1].event_number, text, change=sum(link.change for link in middle))
        kept = [*kept[: MAX_LINKS // 2], together, *kept[-MAX_LINKS // 2 :]]
    return tuple(kept)


def _come_and_gone(life: Life) -> set[int | None]:
    """Return the numbers of references that were dropped again, and of their drops, without the first reference."""
    open_at: dict[tuple[int, int, int], Reference] = {}
    gone: set[int | None] = set()
    for reference in life.references[1:]:
        if not ev.is_loss(reference.event):
            open_at[reference.place] = reference
        elif (added := open_at.pop(reference.place, None)) is not None:
            gone |= {added.number, reference.number}
    return gone


def _answer(past: Past, block_id: int, life: Life) -> str:
    holders = holders_of(past, block_id)
    count, name = past.state.ref_counts[block_id], block_name(block_id)
    num_pins = past.state.pins.get(block_id, 0)
    if num_pins and num_pins == count and not holders:
        return f"No block table points to {name}. {_pinned(past, block_id, num_pins)}"
    if not holders and not count:
        return f"No block table points to {name}: it is free."
    if not holders:
        return (
            f"No block table points to {name}, yet it has ref count {count}: a reference was added and never removed."
        )
    text = f"{counted(len(holders), 'table entry')} "
    text += (
        f"{'points' if len(holders) == 1 else 'point'} to {name}: {listed(entry_name(*holder) for holder in holders)}."
    )
    if num_pins and len(holders) + num_pins == count:
        return f"{text} {_pinned(past, block_id, num_pins)}"
    if len(holders) != count:
        return f"{text} The count says {count}: the two should be equal."
    if len({request_id for request_id, _, _ in holders}) < len(holders):
        return f"{text} One request holds it twice: it reads through one entry what it writes through the other."
    return text + _how(past, life, count, holders)


def _pinned(past: Past, block_id: int, num_pins: int) -> str:
    """Describe a block's references that no table holds: the prefix tree's, or by the newest event that added one."""
    node_id = node_of(past, block_id)
    if node_id is not None:
        return f"The prefix tree holds 1 reference, for {node_name(node_id)}, which {_protection(past, node_id)}."
    for _, event in past.backwards():
        match event:
            case ev.FreeDeferred() if block_id in event.block_ids:
                name = request_name(event.request_id)
                what = (
                    f"{name} has given it up, and it will be freed once the steps that may still write to it have ended"
                )
            case ev.BlockCopied(is_pinned=True) if block_id in (event.block_id, event.into_block_id):
                what = "it is kept until the copy for a hit inside a block has been made"
            case ev.BlockPinned() if event.block_id == block_id:
                what = "it is pinned, as a connector does with a block that it copies"
            case _:
                continue
        break
    else:
        what = f"already there when the recording began (event {past.first})"
    are = "reference is" if num_pins == 1 else "references are"
    return f"{num_pins} {are} not held by any block table: {what}."


def node_of(past: Past, block_id: int) -> int | None:
    """Return the node of the prefix tree that has a block; None for none."""
    nodes = past.state.tree.nodes.items()
    return next((node_id for node_id, node in nodes if block_id in node.block_ids), None)


def _protection(past: Past, node_id: int) -> str:
    tree = past.state.tree
    lockers = [request_name(i) for i, held in sorted(tree.holds.items()) if node_id in tree.path(held)]
    if lockers:
        return f"is locked by {listed(lockers)}"
    return "has no locks and is evicted next" if tree.next_leaf() == node_id else "has no locks"


def holders_of(past: Past, block_id: int) -> list[tuple[int, int, int]]:
    """Return (request id, group, index) of every table entry that points at a block."""
    return [
        (request_id, group, index)
        for request_id, request in past.state.requests.items()
        for group, table in enumerate(request.block_tables)
        for index, held in enumerate(table)
        if held == block_id
    ]


def _how(past: Past, life: Life, count: int, holders: list[tuple[int, int, int]]) -> str:
    since_taken = life.references[life.begins_in_recording :]
    merged = sum(isinstance(reference.event, ev.EntryReplaced) for reference in since_taken)
    touches = [one.event for one in life.references if isinstance(one.event, ev.BlockTouched)]
    forked = sum(event.is_fork for event in touches)
    touched = len(touches) - forked
    if count > 1 and not (life.begins_in_recording or merged or touches):
        return f" It already had ref count {life.base} when the recording began (event {past.first})."
    if count == 1:
        return _why_alone(past, holders[0])
    if not (merged or touches):
        return ""
    copies = "an equal copy was" if merged == 1 else f"{merged} equal copies were"
    ways = [f"{counted(touched, 'request')} found it in the cache"] * bool(touched)
    ways += [f"{counted(forked, 'fork')} shared it"] * bool(forked)
    ways += [f"{copies} merged into it"] * bool(merged)
    since = "it was allocated" if life.begins_in_recording else f"the recording began (event {past.first})"
    return f" Since {since}, {listed(ways)}."


def _why_alone(past: Past, place: tuple[int, int, int]) -> str:
    """Return why no look-up finds the block of one request's table entry; empty where one does."""
    request_id, group, index = place
    request, rule = past.state.requests[request_id], past.state.groups[group]
    if past.state.block_keys[request.block_tables[group][index]]:
        return ""
    if rule.kind == "state":
        return (
            " Only one request uses this state, because each step overwrites it. Any other would continue from a copy."
        )
    if request.num_computed_tokens >= (index + 1) * rule.block_size:
        return ""
    return " The block is not full, so it has no hash and no look-up finds it."
