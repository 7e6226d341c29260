"""Why the prefix tree changed: the cause of each change, and the values that decided it."""

from __future__ import annotations

from collections.abc import Sequence

from labengine import events as ev
from labengine.record.tree_fold import NodeFold, TreeFold
from labengine.record.wording import block_names, counted, listed, node_name, node_names, request_name
from labengine_widgets.why.past import Past

TreeEvent = ev.NodeInserted | ev.NodeSplit | ev.NodesTouched | ev.NodeLocked | ev.NodeUnlocked | ev.NodeEvicted
_COMPUTED = (ev.TokenSampled, ev.TokensComputed, ev.SlotsWritten)
MAX_OTHERS = 3
"""Maximum number of other nodes that an answer compares with one."""


def first_of(past: Past, node_id: int) -> int | None:
    """Return the number of the event that made a node: its insertion, or the split of which it is the upper half."""
    for number, event in past.backwards():
        if isinstance(event, ev.NodeInserted) and event.node_id == node_id:
            return number
        if isinstance(event, ev.NodeSplit) and event.upper_id == node_id:
            return number
    return None


def walk_of(past: Past, number: int) -> tuple[int | None, ev.Event | None]:
    """Return the look-up or insertion that split or touched nodes: (its cause, the event that names its request).

    A look-up reports itself after its walk, unless its request is not admitted; then both are None. An insertion of
    blocks that the tree has already leaves no event: the token after which it happened names the request.
    """
    for _, event in past.forwards(number + 1, min(past.timeline.end, number + 64)):
        if isinstance(event, ev.PrefixHit):
            cause = past.last(ev.RequestAdded, ev.RequestPreempted, before=number, request_id=event.request_id)
            return (None if cause is None else cause[0]), event
        if isinstance(event, ev.NodeInserted | ev.NodeUnlocked | ev.NodeLocked):
            cause = past.last(*_COMPUTED, before=number, request_id=event.request_id)
            return (None if cause is None else cause[0]), event
        if not isinstance(event, ev.NodeSplit | ev.NodesTouched):
            break
    for before, event in past.backwards(number):
        if isinstance(event, _COMPUTED):
            return before, event
        if not isinstance(event, ev.NodeSplit | ev.NodesTouched):
            break
    return None, None


def values_of(past: Past, number: int, event: TreeEvent) -> str:
    """Return the values behind a change of the tree, in words; empty for an event that no tree can follow."""
    try:
        return _described(past, number, event)
    except LookupError:
        return ""


def _described(past: Past, number: int, event: TreeEvent) -> str:
    before = past.at(number).tree
    match event:
        case ev.NodeInserted():
            return _inserted(past, event)
        case ev.NodeSplit():
            return _split(past, number, event, before.nodes[event.node_id])
        case ev.NodesTouched():
            return _touched(past, number, event, before)
        case ev.NodeLocked():
            return _locked(past.at(number + 1).tree, event)
        case ev.NodeUnlocked():
            return _unlocked(past.at(number + 1).tree, event)
        case ev.NodeEvicted():
            return _evicted(event, before)


def _inserted(past: Past, event: ev.NodeInserted) -> str:
    size, found = past.state.groups[event.group].block_size, event.first_index
    had = f"the first {counted(found * size, 'token')} of its text" if found else "nothing of its text"
    ids = event.block_ids
    return (
        f"The tree had {had}; the {counted(len(ids) * size, 'token')} that follow were new, so {block_names(ids)} "
        f"{'became' if len(ids) > 1 else 'is'} a leaf, which holds a reference to each."
    )


def _split(past: Past, number: int, event: ev.NodeSplit, node: NodeFold) -> str:
    _, walk = walk_of(past, number)
    whose = "a request that was not admitted" if walk is None else _owner(walk)
    return (
        f"The text of {whose} equals {event.num_blocks} of the node's {counted(len(node.block_ids), 'block')} and "
        f"then differs, and a look-up uses whole nodes. Both halves keep {counted(node.num_locks, 'lock')} and the "
        "same place in the order of use."
    )


def _owner(event: ev.Event) -> str:
    return request_name(getattr(event, "request_id"))  # noqa: B009


def _touched(past: Past, number: int, event: ev.NodesTouched, before: TreeFold) -> str:
    _, walk = walk_of(past, number)
    if walk is None:
        who = "The look-up of a request that was not admitted used"
    else:
        who = f"{_owner(walk)}'s {'look-up' if isinstance(walk, ev.PrefixHit) else 'insertion'} used"
    ages = {state.node_id: place for place, state in enumerate(before.states(), 1)}
    places = [str(ages[node_id]) for node_id in event.node_ids]
    return (
        f"{who} {'it' if len(places) == 1 else 'them, from the root down'}. Before, counted from the one used longest "
        f"ago, {node_names(event.node_ids)} {'was' if len(places) == 1 else 'were'} {listed(places)} of {len(ages)}."
    )


def _locked(tree: TreeFold, event: ev.NodeLocked) -> str:
    path = tree.path(event.node_id)
    num_blocks = sum(len(tree.nodes[node_id].block_ids) for node_id in path)
    return (
        f"{request_name(event.request_id)} reads the {counted(num_blocks, 'block')} of {node_names(path)}. A node "
        f"with locks is never evicted; {counted(len(tree.evictable()), 'block')} of the tree can be."
    )


def _unlocked(tree: TreeFold, event: ev.NodeUnlocked) -> str:
    path = tree.path(event.node_id)
    locked = [f"{node_name(node_id)} by {lockers(tree, node_id)}" for node_id in path if tree.nodes[node_id].num_locks]
    free = [node_id for node_id in path if not tree.nodes[node_id].num_locks]
    still = f"Still locked: {listed(locked)}. " if locked else ""
    if not free:
        return still.strip()
    what = "each can be evicted once it is a leaf" if len(free) > 1 else "it can be evicted once it is a leaf"
    return f"{still}No lock protects {node_names(free)} any more: {what}."


def _evicted(event: ev.NodeEvicted, tree: TreeFold) -> str:
    """Compare the node with the leaves that stay, and with the older nodes that do too."""
    if event.reason != "reused":
        return ""
    need = f"Only the last {counted(len(event.block_ids), 'block')} of the node had to go. " if event.num_kept else ""
    inner = {node.parent_id for node in tree.nodes.values()}
    states = tree.states()
    leaves = [state.node_id for state in states if state.node_id not in inner]
    free = [node_id for node_id in leaves if not tree.nodes[node_id].num_locks]
    others = [node_id for node_id in free if node_id != event.node_id]
    ages = [state.node_id for state in states]
    older = ages[: ages.index(event.node_id)]
    if event.node_id not in free:
        return ""
    text = _leaves_in_words(len(leaves), len(leaves) - len(free))
    if free[0] != event.node_id:
        text += f"{node_name(free[0]).capitalize()} was used longer ago than this one."
    elif others:
        text += f"Of those without, this one was used longest ago, before {node_names(others[:MAX_OTHERS])}."
    else:
        text += "This one is the only one without."
    return f"{need}{text}{_why_older_stay(tree, older)}"


def _leaves_in_words(num_leaves: int, num_locked: int) -> str:
    leaves = "The tree has one leaf" if num_leaves == 1 else f"The tree has {num_leaves} leaves"
    return f"{leaves}, {num_locked or 'none'} of them with locks. "


def _why_older_stay(tree: TreeFold, older: Sequence[int]) -> str:
    if not older:
        return ""
    reasons = [f"{node_name(i)} ({protection(tree, i)})" for i in older[:MAX_OTHERS]]
    more = f" and {len(older) - MAX_OTHERS} more" if len(older) > MAX_OTHERS else ""
    return f" Used even longer ago, but protected: {', '.join(reasons)}{more}."


def protection(tree: TreeFold, node_id: int) -> str:
    if tree.nodes[node_id].num_locks:
        return f"locked by {lockers(tree, node_id)}"
    children = [child for child, node in tree.nodes.items() if node.parent_id == node_id]
    return f"above {node_names(children[:MAX_OTHERS])}" if children else "a leaf without locks"


def lockers(tree: TreeFold, node_id: int) -> str:
    """Return the requests whose lock reaches a node."""
    return listed(request_name(i) for i, held in sorted(tree.holds.items()) if node_id in tree.path(held))
