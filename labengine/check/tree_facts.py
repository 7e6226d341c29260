"""Contradictions about the prefix tree: nodes, locks and recency in which the core differs from its events' fold."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice

from labengine.check.contradictions import MAX_FOUND, Contradiction
from labengine.core.radix.node import Node
from labengine.core.radix.prefix_tree import PrefixTree
from labengine.record.tree_fold import ROOT, NodeFold, TreeFold


def tree_contradictions(
    fold: TreeFold, tree: PrefixTree | None, node_ids: Collection[int] | None = None
) -> list[Contradiction]:
    """Return every contradiction about these nodes, by default about all, and about all locks."""
    if tree is None:
        return []
    counts: list[Contradiction] = []
    if node_ids is None:
        node_ids = {**fold.nodes, **tree.nodes}.keys()
        counts = [*_of_count(fold, tree)]
    nodes = [one for node_id in sorted(node_ids) for one in _of_node(fold, tree, node_id)]
    return [*nodes[:MAX_FOUND], *counts, *islice(_of_holds(fold, tree), MAX_FOUND), *_of_recency(fold, tree, node_ids)]


def seen(tree: PrefixTree, node: Node) -> NodeFold:
    """Return a node of the core as the fold describes nodes, with parent -1 if the tree does not lead to it."""
    parent = (
        tree.root if node.parent is tree.root else tree.nodes.get(-1 if node.parent is None else node.parent.node_id)
    )
    is_found = parent is not None and parent is node.parent and parent.children.get(node.key) is node
    parent_id = parent.node_id if parent is not None and is_found else -1
    return NodeFold(parent_id, node.first_index, (*node.block_ids,), node.num_locks, node.touched, len(node.children))


def _of_node(fold: TreeFold, tree: PrefixTree, node_id: int) -> Iterator[Contradiction]:
    claimed, node = fold.nodes.get(node_id), tree.nodes.get(node_id)
    actual = None if node is None else seen(tree, node)
    if claimed is None or actual is None:
        if claimed is not actual:
            words = ("is in the tree", "it is not") if actual is None else ("is not in the tree", "it is")
            yield _contradiction("node", f"node {node_id} {words[0]}", words[1], node_id, claimed or actual)
        return
    if claimed.parent_id != actual.parent_id:
        words = _below(claimed.parent_id), _below(actual.parent_id)
        yield _contradiction("node", f"node {node_id} is {words[0]}", f"it is {words[1]}", node_id, claimed)
    if (claimed.first_index, claimed.block_ids) != (actual.first_index, actual.block_ids):
        words = _content(claimed), _content(actual)
        yield _contradiction("node", f"node {node_id} has {words[0]}", f"it has {words[1]}", node_id, claimed)
    if claimed.num_locks != actual.num_locks:
        text = f"node {node_id} is locked by {claimed.num_locks} requests"
        yield _contradiction("locks", text, f"it counts {actual.num_locks}", node_id, claimed)


def _of_count(fold: TreeFold, tree: PrefixTree) -> Iterator[Contradiction]:
    if fold.num_evictable != tree.num_evictable:
        text = f"nodes without locks have {fold.num_evictable} blocks"
        yield Contradiction("locks", text, f"the tree counts {tree.num_evictable}")


def _of_holds(fold: TreeFold, tree: PrefixTree) -> Iterator[Contradiction]:
    actual = {request_id: node.node_id for request_id, node in tree.holds.items()}
    if fold.holds == actual:
        return
    for request_id in sorted({*fold.holds, *actual}):
        claimed, found = fold.holds.get(request_id), actual.get(request_id)
        if claimed != found:
            text = f"request {request_id} locks {_named(claimed)}"
            yield Contradiction("hold", text, f"it locks {_named(found)}", request_id)


def _of_recency(fold: TreeFold, tree: PrefixTree, node_ids: Iterable[int]) -> Iterator[Contradiction]:
    """Yield the first node that comes at another place in the order of these nodes."""
    both = [node_id for node_id in node_ids if node_id in fold.nodes and node_id in tree.nodes]
    for one, other in zip(_by_age(fold.nodes, both), _by_age(tree.nodes, both), strict=True):
        if one != other:
            text = f"node {one} was used longer ago than node {other}"
            yield _contradiction("recency", text, "it is the other way round", one, fold.nodes[one])
            return


def _by_age(nodes: Mapping[int, NodeFold] | Mapping[int, Node], node_ids: Iterable[int]) -> list[int]:
    return sorted(node_ids, key=lambda node_id: (nodes[node_id].touched, nodes[node_id].first_index))


def _contradiction(about: str, claimed: str, actual: str, node_id: int, node: NodeFold | None) -> Contradiction:
    block_id = None if node is None else next(iter(node.block_ids), None)
    return Contradiction(about, claimed, actual, block_id=block_id, node_id=node_id)


def _below(parent_id: int) -> str:
    return "below the root" if parent_id == ROOT else "not below a node" if parent_id < 0 else f"below node {parent_id}"


def _content(node: NodeFold) -> str:
    return f"blocks {', '.join(map(str, node.block_ids))} after {node.first_index} others"


def _named(node_id: int | None) -> str:
    return "nothing" if node_id is None else f"node {node_id}"
