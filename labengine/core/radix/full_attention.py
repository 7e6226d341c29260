"""Full attention on a prefix tree: tables take their cached blocks from it, and give their computed ones to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from labengine.core.full_attention import FullAttentionGroup
from labengine.core.radix.node import Node
from labengine.core.radix.prefix_tree import PrefixTree
from labengine.core.request import Request
from labengine.events import FreeReason


class RadixGroup(FullAttentionGroup):
    """Full attention whose cached blocks are those of the tree's nodes; a request locks the nodes in its table."""

    @property
    def tree(self) -> PrefixTree:
        """The tree that decides which blocks are cached."""
        return cast(PrefixTree, self._pool.tree)

    def num_blocks_to_admit(self, hit: Sequence[int], num_computed_tokens: int, num_blocks: int) -> int:
        """Return how many free blocks a table of num_blocks blocks takes if it starts with a hit.

        A hit on a node without locks costs its blocks too, because they can no longer be evicted.
        """
        return max(num_blocks - len(hit), 0) + self.num_newly_locked(hit)

    def num_newly_locked(self, hit: Sequence[int]) -> int:
        """Return how many blocks of a hit no request has locked."""
        node_of = self.tree.node_of
        return sum(not node_of[block_id].num_locks for block_id in hit if block_id in node_of)

    def add_hit(self, request: Request, hit: Sequence[int], num_computed_tokens: int) -> None:
        """Start the request's table with cached blocks, and lock their nodes."""
        if hit:
            self.tree.lock(self.node_of_hit(request, hit), request)
        super().add_hit(request, hit, num_computed_tokens)

    def node_of_hit(self, request: Request, hit: Sequence[int]) -> Node:
        """Return the node that ends an admitted request's hit. Only now is one split and the prefix touched."""
        return self.tree.match(request, len(hit))

    def add_shared(self, request: Request, parent: Request, num_tokens: int) -> None:
        """Start a fork's table with the parent's blocks, and lock the nodes that the parent has locked."""
        self.tree.lock(self.tree.held_by(parent), request)
        super().add_shared(request, parent, num_tokens)

    def register(self, request: Request, num_tokens: int) -> None:
        """Insert the full blocks of the first num_tokens tokens; the request's lock moves to the node at their end."""
        tree, num_blocks = self.tree, num_tokens // self.block_size
        if not num_blocks:
            return
        node = self.insert(request, num_blocks)
        if node is not tree.held_by(request):
            tree.unlock(request)
            tree.lock(node, request)
        self._set_registered(request, num_blocks)

    def insert(self, request: Request, num_blocks: int) -> Node:
        """Insert the table's first num_blocks blocks, merging those that the tree already has; return the last node."""
        table, num_owned = request.block_tables[self.index], self.tree.held_by(request).end
        node, num_found = self.tree.insert(request, table[:num_blocks])
        for index in range(num_found, num_blocks):
            self.register_block(request, index)
        for found in node.path():
            self.merge_into(request, found, range(max(found.first_index, num_owned), min(found.end, num_found)))
        return node

    def merge_into(self, request: Request, node: Node, indices: Iterable[int]) -> None:
        """Replace the request's own blocks at these places with the node's."""
        table = request.block_tables[self.index]
        for index in indices:
            if (block_id := node.block_ids[index - node.first_index]) != table[index]:
                self.merge(request, index, table[index], block_id)

    def freeing_order(self, num_entries: int) -> Sequence[int]:
        """Return the table's order, in which the last blocks of a request are freed."""
        return range(num_entries)

    def free(self, request: Request, reason: FreeReason) -> None:
        """Unlock the request's nodes, and free its table."""
        self.tree.unlock(request)
        super().free(request, reason)
