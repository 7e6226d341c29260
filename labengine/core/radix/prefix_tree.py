"""The prefix tree: which cached blocks are found, which are kept, and which are evicted."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import NamedTuple, Protocol

from labengine.core.block import Block
from labengine.core.journal import Journal
from labengine.core.radix.node import Node
from labengine.core.request import ExtraKeys, Request
from labengine.events import (
    EvictReason,
    NodeEvicted,
    NodeInserted,
    NodeLocked,
    NodeSplit,
    NodesTouched,
    NodeUnlocked,
    QueueEnd,
)
from labengine.record.hooks import Hooks


class TreePool(Protocol):
    """The methods of a pool that its tree calls."""

    @property
    def blocks(self) -> Sequence[Block]: ...
    def share(self, block: Block) -> None: ...
    def reclaim(self, block_ids: Sequence[int], reason: EvictReason) -> QueueEnd | None: ...
    def evict(self, block: Block, reason: EvictReason) -> None: ...


class Found(NamedTuple):
    """The longest cached prefix: the nodes on the way to its end, and its length. It may end inside the last node."""

    path: list[Node]
    num_blocks: int


class Inserted(NamedTuple):
    """Result of an insertion: the node that ends the prefix, and how many of its blocks the tree already had."""

    node: Node
    num_found: int


class PrefixTree:
    """All cached blocks of the pool, as a radix tree over the tokens of whole blocks.

    The tree holds one reference to each of its blocks, which is in no table. Requests lock the nodes they use; a leaf
    without locks can be evicted, and then its parent may have become one. Source: mini-sglang's RadixPrefixCache.
    """

    def __init__(self, pool: TreePool, hooks: Hooks, journal: Journal) -> None:
        self.root = Node(0, None, (), 0, [], [])
        self.nodes: dict[int, Node] = {}
        """All nodes but the root, by id."""
        self.node_of: dict[int, Node] = {}
        """Per block in the tree, its node."""
        self.holds: dict[int, Node] = {}
        """Per request with a lock, the node at which the lock begins; it reaches up to the root."""
        self.num_evictable = 0
        """Blocks of nodes without locks."""
        self._pool = pool
        self._hooks = hooks
        self._journal = journal
        self._num_created = 0
        self._num_touches = 0
        self._leaves: list[tuple[int, int, Node]] = []
        """A heap that has each leaf without locks under its newest touch, besides outdated entries."""
        self._serial = count()

    # -- looking up ----------------------------------------------------------------------------------------------------

    def find(self, request: Request, num_blocks: int) -> Found:
        """Return the longest cached prefix of at most num_blocks blocks. Changes nothing.

        A request that waits is looked up at every step. If that changed the tree, its prefix would stay young and fall
        apart into small nodes although nobody reads it.
        """
        path, end, node = [], 0, self.root
        while end < num_blocks and end == node.end and (child := self.child_of(node, request)) is not None:
            path.append(child)
            node, end = child, child.first_index + self.num_equal(child, request, num_blocks)
        return Found(path, end)

    def match(self, request: Request, num_blocks: int) -> Node:
        """Return the node that ends the longest cached prefix of at most num_blocks blocks; the root if there is none.

        A node that continues differently is split where they part. All nodes of the prefix become the youngest.
        """
        path, end = self.find(request, num_blocks)
        if not path:
            return self.root
        if end < path[-1].end:
            path[-1] = self.split(path[-1], end - path[-1].first_index)
        self.touch(path)
        return path[-1]

    def child_of(self, node: Node, request: Request) -> Node | None:
        """Return the child that begins with the request's next block; None if there is none."""
        if node.end >= len(request.links):
            return None
        return node.children.get((request.extra_keys, request.links[node.end]))

    def num_equal(self, node: Node, request: Request, num_blocks: int) -> int:
        """Return how many of a node's blocks continue the request's first num_blocks blocks."""
        own = request.links[node.first_index : min(node.end, num_blocks)]
        if own == node.links:
            return len(own)
        return next((i for i, (one, link) in enumerate(zip(own, node.links, strict=False)) if one != link), len(own))

    def touch(self, nodes: Sequence[Node]) -> None:
        """Make these nodes the youngest, in this order.

        Here they are the whole path from the root, so a node's last touch is never from an earlier walk than that of
        any node below it. The order within the path decides nothing, because only leaves are evicted.
        """
        if not nodes:
            return
        self._journal.record((self._untouch, self._num_touches, [(node, node.touched) for node in nodes]))
        for node in nodes:
            self._num_touches += 1
            node.touched = self._num_touches
            self._offer(node)
        if NodesTouched in self._hooks:
            self._hooks.emit(NodesTouched(tuple(node.node_id for node in nodes)))

    def split(self, node: Node, num_blocks: int) -> Node:
        """Move a node's first num_blocks blocks to a new node above it, and return that one.

        Whoever holds the lower node keeps it. Both have the same locks and recency. Raises ValueError, before anything
        changes, unless each half gets a block.
        """
        if not 0 < num_blocks < len(node.block_ids):
            raise ValueError(f"{node} has {len(node.block_ids)} blocks: it cannot be split after {num_blocks} of them")
        assert node.parent is not None
        upper = self._new_node(node.parent, node.extra_keys, node.block_ids[:num_blocks], node.links[:num_blocks])
        upper.num_locks, upper.touched = node.num_locks, node.touched
        end, key = upper.end, (node.extra_keys, node.links[num_blocks])
        self._journal.record((self._join, upper, node))
        self._enter(upper)
        del node.block_ids[:num_blocks], node.links[:num_blocks]
        node.parent, node.first_index = upper, end
        upper.children[key] = node
        if NodeSplit in self._hooks:
            self._hooks.emit(NodeSplit(node.node_id, upper.node_id, num_blocks))
        return upper

    # -- inserting -----------------------------------------------------------------------------------------------------

    def insert(self, request: Request, block_ids: Sequence[int]) -> Inserted:
        """Add a request's first full blocks, in table order, as far as the tree lacks them."""
        node = self.match(request, len(block_ids))
        num_found = node.end
        if num_found < len(block_ids):
            node = self.add_leaf(node, request, block_ids[num_found:])
        return Inserted(node, num_found)

    def add_leaf(self, parent: Node, request: Request, block_ids: Sequence[int]) -> Node:
        """Add a node with these blocks, each of which gets a reference from the tree.

        Raises ValueError, before anything changes, if the parent has a child that begins like them.
        """
        links = request.links[parent.end : parent.end + len(block_ids)]
        if (sibling := parent.children.get((request.extra_keys, links[0]))) is not None:
            raise ValueError(f"{sibling} begins with the same block, but the walk to {parent} has passed it over")
        node = self._new_node(parent, request.extra_keys, [*block_ids], links)
        replaced = {block_id: self.node_of[block_id] for block_id in block_ids if block_id in self.node_of}
        self._journal.record((self._take_out, node, replaced, self.num_evictable, self._num_touches))
        self._num_touches += 1
        node.touched = self._num_touches
        self._enter(node)
        self.num_evictable += len(node.block_ids)
        for block_id in block_ids:
            self._pool.share(self._pool.blocks[block_id])
        self._offer(node)
        if NodeInserted in self._hooks:
            self._hooks.emit(
                NodeInserted(
                    node.node_id, parent.node_id, request.request_id, 0, node.first_index, tuple(node.block_ids)
                )
            )
        return node

    # -- locks ---------------------------------------------------------------------------------------------------------

    def lock(self, node: Node, request: Request) -> None:
        """Lock a node and all above it for a request, so that none of them is evicted."""
        if node is self.root:
            return
        self._journal.put(self.holds, request.request_id, node)
        self._count_locks(node.path(), 1)
        if NodeLocked in self._hooks:
            self._hooks.emit(NodeLocked(node.node_id, request.request_id))

    def unlock(self, request: Request) -> None:
        """Give up a request's lock, if it has one."""
        if request.request_id in self.holds:
            self._give_up(request.request_id)

    def held_by(self, request: Request) -> Node:
        """Return the node at which a request's lock begins; the root if it has none."""
        return self.holds.get(request.request_id, self.root)

    def _give_up(self, request_id: int) -> None:
        node = self.holds[request_id]
        self._journal.put(self.holds, request_id, None)
        self._count_locks(node.path(), -1)
        if NodeUnlocked in self._hooks:
            self._hooks.emit(NodeUnlocked(node.node_id, request_id))

    def _count_locks(self, path: Sequence[Node], change: int) -> None:
        self._journal.record((self._recount, [(node, node.num_locks) for node in path], self.num_evictable))
        for node in path:
            was_free = not node.num_locks
            node.num_locks += change
            if was_free != (not node.num_locks):
                self.num_evictable += len(node.block_ids) if not node.num_locks else -len(node.block_ids)
                self._offer(node)

    # -- evicting ------------------------------------------------------------------------------------------------------

    def evict(self, num_blocks: int) -> None:
        """Evict exactly num_blocks blocks, or all that no request has locked: the oldest leaves, the last in part.

        Of a leaf that is longer than what is missing, the head stays, because the tail is useless without it.
        """
        while num_blocks > 0 and (leaf := self.next_leaf()) is not None:
            size = len(leaf.block_ids)
            self.remove(leaf, "reused", max(size - num_blocks, 0))
            num_blocks -= size

    def next_leaf(self) -> Node | None:
        """Return the leaf to evict next: of those without locks, the one touched longest ago. None if there is none."""
        while self._leaves:
            touched, _, leaf = self._leaves[0]
            if leaf.touched == touched and self._can_go(leaf):
                return leaf
            heappop(self._leaves)
        return None

    def remove(self, leaf: Node, reason: EvictReason, num_kept: int = 0) -> None:
        """Take a leaf without locks out of the tree, or only its blocks after the first num_kept; give them back.

        Raises ValueError, before anything changes, for any other node, and if no block would go.
        """
        if not self._can_go(leaf):
            raise ValueError(f"{leaf} cannot be evicted: only a leaf of the tree without locks can")
        if not 0 <= num_kept < len(leaf.block_ids):
            raise ValueError(f"{leaf} has {len(leaf.block_ids)} blocks: it cannot keep {num_kept} and lose the others")
        assert leaf.parent is not None
        block_ids, links = leaf.block_ids[num_kept:], leaf.links[num_kept:]
        self._journal.record((self._put_back, leaf, num_kept, block_ids, links, self.num_evictable))
        self._leave(leaf, num_kept)
        self.num_evictable -= len(block_ids)
        self._give_back(leaf, block_ids, reason, num_kept)
        self._offer(leaf.parent)

    def _give_back(self, leaf: Node, block_ids: Sequence[int], reason: EvictReason, num_kept: int) -> None:
        end = self._pool.reclaim(block_ids, reason)
        if NodeEvicted in self._hooks:
            self._hooks.emit(NodeEvicted(leaf.node_id, tuple(block_ids), end, reason, num_kept))
        for block_id in block_ids:
            self._pool.evict(self._pool.blocks[block_id], reason)

    def forget(self, block_id: int, reason: EvictReason) -> None:
        """Take a block out of the tree, with all that continues it; the locks that begin in its node or below end."""
        first = self.node_of[block_id]
        below = [first]
        for node in below:
            below.extend(sorted(node.children.values(), key=lambda child: child.age))
        for node in reversed(below):
            for request_id in [request_id for request_id, held in self.holds.items() if held is node]:
                self._give_up(request_id)
            self.remove(node, reason, first.block_ids.index(block_id) if node is first else 0)

    # -- the heap of leaves --------------------------------------------------------------------------------------------

    def _can_go(self, node: Node) -> bool:
        return not node.num_locks and not node.children and self.nodes.get(node.node_id) is node

    def _offer(self, node: Node) -> None:
        """Enter a node into the heap if it can be evicted."""
        if not self._can_go(node):
            return
        if len(self._leaves) > 4 * len(self.nodes) + 64:
            self._leaves = [(one.touched, next(self._serial), one) for one in self.nodes.values() if self._can_go(one)]
            heapify(self._leaves)
        heappush(self._leaves, (node.touched, next(self._serial), node))

    # -- bookkeeping, and inverses -------------------------------------------------------------------------------------
    # An override may raise in the middle of a change, so each inverse restores former values, however far it got.

    def _new_node(
        self, parent: Node, extra_keys: ExtraKeys, block_ids: list[int], links: list[tuple[object, ...]]
    ) -> Node:
        self._journal.record((setattr, self, "_num_created", self._num_created))
        self._num_created += 1
        return Node(self._num_created, parent, extra_keys, parent.end, block_ids, links)

    def _enter(self, node: Node, num_kept: int = 0) -> None:
        """Make a node, whose first num_kept blocks are in the tree already, part of it."""
        assert node.parent is not None
        node.parent.children[node.key] = node
        self.nodes[node.node_id] = node
        self.node_of.update(dict.fromkeys(node.block_ids[num_kept:], node))

    def _leave(self, node: Node, num_kept: int = 0) -> None:
        """Take a node out of the tree, or only its blocks after the first num_kept."""
        assert node.parent is not None
        for block_id in node.block_ids[num_kept:]:
            if self.node_of.get(block_id) is node:
                del self.node_of[block_id]
        if num_kept:
            del node.block_ids[num_kept:], node.links[num_kept:]
            return
        if node.parent.children.get(node.key) is node:
            del node.parent.children[node.key]
        self.nodes.pop(node.node_id, None)

    def _untouch(self, num_touches: int, before: Sequence[tuple[Node, int]]) -> None:
        self._num_touches = num_touches
        for node, touched in before:
            node.touched = touched
            self._offer(node)

    def _recount(self, before: Sequence[tuple[Node, int]], num_evictable: int) -> None:
        self.num_evictable = num_evictable
        for node, num_locks in before:
            node.num_locks = num_locks
            self._offer(node)

    def _join(self, upper: Node, node: Node) -> None:
        """Undo a split."""
        if node.parent is upper:
            node.block_ids[:0], node.links[:0] = upper.block_ids, upper.links
            node.parent, node.first_index = upper.parent, upper.first_index
        self.nodes.pop(upper.node_id, None)
        self._enter(node)

    def _take_out(self, node: Node, replaced: dict[int, Node], num_evictable: int, num_touches: int) -> None:
        """Undo the insertion of a leaf. replaced: former nodes of blocks that a wrong part has inserted twice."""
        assert node.parent is not None
        self._leave(node)
        self.node_of.update(replaced)
        self.num_evictable, self._num_touches = num_evictable, num_touches
        self._offer(node.parent)

    def _put_back(
        self, leaf: Node, num_kept: int, block_ids: list[int], links: list[tuple[object, ...]], num_evictable: int
    ) -> None:
        """Undo a removal."""
        leaf.block_ids[num_kept:], leaf.links[num_kept:] = block_ids, links
        self._enter(leaf, num_kept)
        self.num_evictable = num_evictable
        self._offer(leaf)
