"""Events that lead from one state of a prefix tree to the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from labengine.events import NodeSplit, NodesTouched
from labengine.record.tree_fold import ROOT, TreeFold


class Node(NamedTuple):
    """A node of the later state. The later state lists them by age, the oldest first."""

    node_id: int
    parent_id: int
    num_locks: int
    block_ids: tuple[int, ...]


def splits(tree: TreeFold, nodes: Sequence[Node]) -> list[NodeSplit]:
    """Return the splits of the earlier tree's nodes. What is left of a node keeps its number, even if it is evicted."""
    node_of = {block_id: node.node_id for node in nodes for block_id in node.block_ids}
    found = []
    for node_id, node in tree.nodes.items():
        parts = [(owner, len([*blocks])) for owner, blocks in groupby(node.block_ids, node_of.get)]
        uppers = parts if parts[-1][0] is None else parts[:-1]
        uppers = [part for part in uppers if part[0] is not None]
        found += [NodeSplit(node_id, upper_id, length) for upper_id, length in uppers if upper_id is not None]
    return found


def touched(tree: TreeFold, nodes: Sequence[Node]) -> NodesTouched | None:
    """Return the touch after which nodes have the later state's order. nodes: those of the tree that stay."""
    places = {state.node_id: place for place, state in enumerate(tree.states())}
    last, length = -1, 0
    for node in nodes:
        if places[node.node_id] < last:
            break
        last, length = places[node.node_id], length + 1
    young = tuple(node.node_id for node in nodes[length:])
    return NodesTouched(young) if young else None


def inserted(tree: TreeFold, nodes: Sequence[Node]) -> Iterator[Node]:
    """Yield the nodes that the tree lacks, each after its parent; else the oldest first."""
    missing = [node for node in nodes if node.node_id not in tree.nodes]
    known = {ROOT, *tree.nodes}
    while missing:
        node = next(one for one in missing if one.parent_id in known)
        missing.remove(node)
        known.add(node.node_id)
        yield node


def evicted(tree: TreeFold, nodes: Sequence[Node]) -> list[tuple[int, tuple[int, ...]]]:
    """Return (node, blocks) of the tree's nodes that the later state lacks, the deepest first."""
    kept = {node.node_id for node in nodes}
    gone = [node_id for node_id in tree.nodes if node_id not in kept]
    gone.sort(key=lambda node_id: -len(tree.path(node_id)))
    return [(node_id, tree.nodes[node_id].block_ids) for node_id in gone]


def below_first(tree: TreeFold, blocks: Mapping[int, tuple[int, ...]]) -> Iterator[tuple[int, int]]:
    """Yield pairs of evicted blocks, one of a node and one of its parent, which was evicted later.

    blocks: those of each evicted node.
    """
    for node_id in blocks:
        if (parent_id := tree.nodes[node_id].parent_id) in blocks:
            yield blocks[node_id][0], blocks[parent_id][0]
