"""The prefix tree that events add up to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from labengine.record.snapshot import NodeState

ROOT = 0


@dataclass(slots=True)
class NodeFold:
    """One node according to the events so far."""

    parent_id: int
    first_index: int
    block_ids: tuple[int, ...]
    num_locks: int = 0
    touched: int = 0
    num_children: int = 0

    @property
    def num_evictable(self) -> int:
        """Its blocks, unless a request locks them."""
        return 0 if self.num_locks else len(self.block_ids)


class TreeFold:
    """Nodes by id, and per request the node at which its lock begins.

    A method raises LookupError for a node that does not exist; it returns False for a change that a tree cannot make.
    """

    def __init__(self) -> None:
        self.nodes: dict[int, NodeFold] = {}
        self.holds: dict[int, int] = {}
        self.num_evictable = 0
        """Blocks of nodes without locks."""
        self._num_touches = 0

    @classmethod
    def of(cls, states: Sequence[NodeState]) -> Self:
        """Return the tree of a snapshot's nodes, the oldest first."""
        tree = cls()
        for state in states:
            tree._num_touches += 1
            node = NodeFold(state.parent_id, 0, state.block_ids, state.num_locks, tree._num_touches)
            tree._put(state.node_id, node)
            tree.holds.update(dict.fromkeys(state.locked_by, state.node_id))
        tree._note_children()
        return tree

    def _note_children(self) -> None:
        """Derive from the parents what a snapshot leaves out: each node's place, and how many children it has."""
        children: dict[int, list[int]] = {}
        for node_id, node in self.nodes.items():
            children.setdefault(node.parent_id, []).append(node_id)
        reached = [(ROOT, 0)]
        for node_id, end in reached:
            for child_id in children.get(node_id, ()):
                child = self.nodes[child_id]
                child.first_index, child.num_children = end, len(children.get(child_id, ()))
                reached.append((child_id, end + len(child.block_ids)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeFold) and self.states() == other.states()

    def copy(self) -> Self:
        """Return an independent copy."""
        other = type(self)()
        other.nodes = {node_id: replace(node) for node_id, node in self.nodes.items()}
        other.holds, other.num_evictable, other._num_touches = dict(self.holds), self.num_evictable, self._num_touches
        return other

    def insert(self, node_id: int, parent_id: int, first_index: int, block_ids: tuple[int, ...]) -> bool:
        """Add a leaf, as the youngest node."""
        end = 0 if parent_id == ROOT else self._end(parent_id)
        is_new = node_id not in self.nodes
        self._num_touches += 1
        self._put(node_id, NodeFold(parent_id, first_index, block_ids, 0, self._num_touches))
        self._count_child(parent_id, 1)
        return is_new and end == first_index and bool(block_ids)

    def split(self, node_id: int, upper_id: int, num_blocks: int) -> bool:
        """Move a node's first blocks to a new node above it."""
        node = self.nodes[node_id]
        is_new, is_inside = upper_id not in self.nodes, 0 < num_blocks < len(node.block_ids)
        lower_ids, first_index = node.block_ids[num_blocks:], node.first_index + num_blocks
        self._put(node_id, replace(node, parent_id=upper_id, first_index=first_index, block_ids=lower_ids))
        self._put(upper_id, replace(node, block_ids=node.block_ids[:num_blocks], num_children=1))
        return is_new and is_inside

    def touch(self, node_ids: Iterable[int]) -> None:
        """Make nodes the youngest, in this order."""
        for node_id in node_ids:
            self._num_touches += 1
            self.nodes[node_id].touched = self._num_touches

    def lock(self, node_id: int, request_id: int) -> bool:
        """Lock a node and all above it."""
        if node_id not in self.nodes:
            raise LookupError
        is_first = request_id not in self.holds
        self._count_locks(node_id, 1)
        self.holds[request_id] = node_id
        return is_first

    def unlock(self, node_id: int, request_id: int) -> bool:
        """Unlock a node and all above it."""
        held = self.holds.pop(request_id, None)
        return self._count_locks(node_id, -1) and held == node_id

    def evict(self, node_id: int, block_ids: tuple[int, ...], num_kept: int) -> bool:
        """Shorten a leaf without locks to num_kept blocks; remove it if that is 0."""
        node = self.nodes[node_id]
        is_end = node.block_ids[num_kept:] == block_ids != ()
        before = node.num_evictable
        if num_kept:
            node.block_ids = node.block_ids[:num_kept]
            self.num_evictable += node.num_evictable - before
        else:
            del self.nodes[node_id]
            self.num_evictable -= before
            self._count_child(node.parent_id, -1)
        return is_end and not node.num_children and not node.num_locks

    def evictable(self) -> set[int]:
        """Return the blocks of nodes without locks."""
        return {block_id for node in self.nodes.values() if not node.num_locks for block_id in node.block_ids}

    def next_leaf(self) -> int | None:
        """Return the leaf without locks that was used longest ago; None if there is none."""
        inner = {node.parent_id for node in self.nodes.values()}
        free = [node_id for node_id, node in self.nodes.items() if not node.num_locks and node_id not in inner]
        return min(free, key=lambda node_id: self.nodes[node_id].touched, default=None)

    def path(self, node_id: int) -> list[int]:
        """Return the ids of a node and all above it, as far as they exist; a wrong tree may have a loop."""
        ids: list[int] = []
        while node_id != ROOT and node_id in self.nodes and len(ids) < len(self.nodes):
            ids.append(node_id)
            node_id = self.nodes[node_id].parent_id
        return ids

    def states(self) -> tuple[NodeState, ...]:
        """Return the nodes, the oldest first. The upper half of a split node counts as older than the lower one."""
        holders: dict[int, list[int]] = {}
        for request_id, node_id in self.holds.items():
            holders.setdefault(node_id, []).append(request_id)
        by_age = sorted(self.nodes.items(), key=lambda entry: (entry[1].touched, entry[1].first_index))
        return tuple(
            NodeState(node_id, node.parent_id, node.block_ids, node.num_locks, tuple(sorted(holders.get(node_id, ()))))
            for node_id, node in by_age
        )

    def _put(self, node_id: int, node: NodeFold) -> None:
        former = self.nodes.get(node_id)
        self.num_evictable += node.num_evictable - (0 if former is None else former.num_evictable)
        self.nodes[node_id] = node

    def _count_locks(self, node_id: int, change: int) -> bool:
        """Count locks on a node and all above it; return False if a count falls below 0."""
        path = [self.nodes[above] for above in self.path(node_id)]
        for node in path:
            before = node.num_evictable
            node.num_locks += change
            self.num_evictable += node.num_evictable - before
        return all(node.num_locks >= 0 for node in path)

    def _count_child(self, parent_id: int, change: int) -> None:
        if parent_id in self.nodes:
            self.nodes[parent_id].num_children += change

    def _end(self, node_id: int) -> int:
        node = self.nodes[node_id]
        return node.first_index + len(node.block_ids)
