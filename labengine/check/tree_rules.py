"""The rules `tree` and `locks`: what a prefix tree is, whose blocks it has, and who keeps them from eviction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from labengine import events as ev
from labengine.check.state import RequestView
from labengine.record.fold import Fold
from labengine.record.tree_fold import ROOT, NodeFold
from labengine.record.violation import Violation

_SHAPING = (ev.NodeInserted, ev.NodeSplit, ev.NodeEvicted)
_LOCKING = (ev.NodeLocked, ev.NodeUnlocked, ev.NodeSplit)
_ENDING = (ev.RequestFinished, ev.RequestPreempted, ev.NodeEvicted)


class TreeState(Protocol):
    """A prefix tree at one moment, in the core or in a recording."""

    @property
    def holds(self) -> Mapping[int, int]:
        """Return, per request with a lock, the node at which it begins."""
        ...

    def node(self, node_id: int) -> NodeFold | None:
        """Return a node of the tree."""
        ...

    def owner(self, block_id: int) -> int | None:
        """Return the node that the tree counts as a block's."""
        ...

    def is_referenced(self, block_id: int) -> bool:
        """Return whether the tree holds a reference to a block."""
        ...

    def misplaced(self, node_id: int) -> int | None:
        """Return the first block of a node that does not continue the prefix before it; None if all do."""
        ...


class FoundInTree(NamedTuple):
    """A violation; the node that shows it, and the request; the kinds of event that may have caused it."""

    violation: Violation
    kinds: tuple[type[ev.Event], ...]
    node_id: int
    request_id: int | None = None

    def may_be_from(self, event: ev.Event) -> bool:
        """Return True for an event of these kinds that names the node or the request."""
        is_about = self.node_id in ev.nodes_of(event) or self.request_id == getattr(event, "request_id", -1)
        return is_about and isinstance(event, self.kinds)


def judge_tree(state: TreeState, requests: Mapping[int, RequestView], node_ids: Iterable[int]) -> Iterator[FoundInTree]:
    """Yield the violations of these nodes, and of all locks."""
    yield from _holds(state, requests)
    num_locks = Counter(above for held in state.holds.values() for above in _path(state, held))
    for node_id in node_ids:
        node = state.node(node_id)
        if node is not None:
            yield from _place(state, node_id, node)
            yield from _blocks(state, node_id, node)
            yield from _locks(node_id, node, num_locks[node_id])


def _place(state: TreeState, node_id: int, node: NodeFold) -> Iterator[FoundInTree]:
    parent = state.node(node.parent_id)
    if parent is None and node.parent_id != ROOT:
        yield _of_tree(f"node {node_id} has no parent that leads to it, so no look-up finds it", node_id, node)
        return
    end = 0 if parent is None else parent.first_index + len(parent.block_ids)
    if node.first_index != end or not node.block_ids:
        place = f"{len(node.block_ids)} blocks after {node.first_index} others"
        yield _of_tree(f"node {node_id} has {place}, but {end} blocks end with its parent", node_id, node)


def _blocks(state: TreeState, node_id: int, node: NodeFold) -> Iterator[FoundInTree]:
    for block_id in node.block_ids:
        if (owner := state.owner(block_id)) != node_id:
            where = "the tree does not count it" if owner is None else f"it is in node {owner} too"
            text = f"block {block_id} is in node {node_id}, but {where}"
            yield _of_tree(text, node_id, node, block_id)
        elif not state.is_referenced(block_id):
            text = f"block {block_id} is in node {node_id}, but the tree holds no reference to it"
            yield _of_tree(text, node_id, node, block_id)
    misplaced = state.misplaced(node_id)
    if misplaced is not None:
        text = f"block {misplaced} of node {node_id} does not continue the tokens before it on its path"
        yield _of_tree(text, node_id, node, misplaced)


def _of_tree(text: str, node_id: int, node: NodeFold, block_id: int | None = None) -> FoundInTree:
    blocks = node.block_ids[:1] if block_id is None else (block_id,)
    return FoundInTree(Violation("tree", text, (), blocks), _SHAPING, node_id)


def _locks(node_id: int, node: NodeFold, num_locks: int) -> Iterator[FoundInTree]:
    if node.num_locks != num_locks:
        text = f"node {node_id} counts {node.num_locks} locks, but {num_locks} requests lock it or a node below it"
        yield FoundInTree(Violation("locks", text, (), node.block_ids[:1]), _LOCKING, node_id)


def _holds(state: TreeState, requests: Mapping[int, RequestView]) -> Iterator[FoundInTree]:
    for request_id, node_id in state.holds.items():
        request = requests.get(request_id)
        if state.node(node_id) is None:
            text = f"request {request_id} locks node {node_id}, which has left the tree"
        elif request is None or request.status == "finished":
            text = f"request {request_id} has finished, but still locks node {node_id}"
        elif not any(request.block_tables):
            text = f"request {request_id} holds no blocks, but still locks node {node_id}"
        else:
            continue
        yield FoundInTree(Violation("locks", text, (request_id,)), _ENDING, node_id, request_id)


def _path(state: TreeState, node_id: int) -> Iterable[int]:
    """Return a node and all above it, each once: a wrong tree may have a loop."""
    path: dict[int, None] = {}
    while node_id not in path and (node := state.node(node_id)) is not None:
        path[node_id] = None
        node_id = node.parent_id
    return path


class FoldedTree:
    """The tree of a recording, which does not show whether blocks continue each other."""

    def __init__(self, fold: Fold) -> None:
        self._pins = fold.pins
        self.holds, self.node = fold.tree.holds, fold.tree.nodes.get
        self.owner = {block_id: i for i, node in fold.tree.nodes.items() for block_id in node.block_ids}.get

    def is_referenced(self, block_id: int) -> bool:
        return self._pins.get(block_id) == 1

    def misplaced(self, node_id: int) -> int | None:
        return None
