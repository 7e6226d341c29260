"""Answers about nodes of the prefix tree: why one stays, and when it is evicted; why one is gone."""

from __future__ import annotations

from labengine import events as ev
from labengine.record.wording import block_names, counted, node_name
from labengine_widgets.why.answer import Link, Why
from labengine_widgets.why.events import why_event
from labengine_widgets.why.past import Past
from labengine_widgets.why.prefix_tree import first_of, protection


def why_node(past: Past, node_id: int) -> Why:
    """Explain why a node is in the tree and what protects it; or, if it has been evicted, its eviction."""
    if node_id in past.state.tree.nodes:
        return _why_there(past, node_id)
    gone = past.last(ev.NodeEvicted, node_id=node_id)
    if gone is None:
        text = "It is not in the tree, and no event of the recording removed it."
        return Why(f"Where is {node_name(node_id)}?", text)
    found = why_event(past, gone[0])
    return Why(f"Why was {node_name(node_id)} evicted?", found.answer, found.links)


def _why_there(past: Past, node_id: int) -> Why:
    tree, size = past.state.tree, past.state.groups[0].block_size
    node = tree.nodes[node_id]
    num_tokens, start = counted(len(node.block_ids) * size, "token"), node.first_index * size
    where = f"from position {start} of their text on" if start else "at the beginning of a text"
    text = f"It caches {num_tokens} {where}, in {block_names(node.block_ids)}. {_fate(past, node_id)}"
    return Why(f"Why is {node_name(node_id)} in the prefix tree?", text, tuple(_links(past, node_id)))


def _fate(past: Past, node_id: int) -> str:
    tree = past.state.tree
    ages = [state.node_id for state in tree.states()]
    place = f"number {ages.index(node_id) + 1} of {len(ages)} from the one used longest ago"
    if tree.next_leaf() == node_id:
        return "The next eviction takes it: of the leaves without locks, it was used longest ago."
    why = protection(tree, node_id)
    if why == LEAF:
        older = sum(protection(tree, one) == LEAF for one in ages[: ages.index(node_id)])
        return f"It can be evicted, after {counted(older, 'older leaf').replace('leafs', 'leaves')} without locks."
    return f"It cannot be evicted now: it is {why}. In the order of use it is {place}."


LEAF = "a leaf without locks"


def _links(past: Past, node_id: int) -> list[Link]:
    """Return links to the event that made the node, and to the newest that split, shortened, touched and locked it."""
    numbers = {first_of(past, node_id)}
    for kind in (ev.NodeSplit, ev.NodeEvicted, ev.NodeLocked, ev.NodeUnlocked):
        found = past.last(kind, node_id=node_id)
        numbers.add(None if found is None else found[0])
    touched = (n for n, event in past.backwards() if isinstance(event, ev.NodesTouched) and node_id in event.node_ids)
    numbers.add(next(touched, None))
    return [past.link(number) for number in sorted(number for number in numbers if number is not None)]
