"""mini-sglang's tables: hits come from a tree that the look-up has changed, and a late merge forgets the table."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.radix.full_attention import RadixGroup
from labengine.core.radix.node import Node
from labengine.core.request import Request
from labengine.events import FreeReason


class MatchedGroup(RadixGroup):
    """Locks the node at which the look-up ended, which it has split and touched."""

    def node_of_hit(self, request: Request, hit: Sequence[int]) -> Node:
        """Return the node that ends a hit, without touching it again; a hit that was shortened may end inside one."""
        node = self.tree.node_of[hit[-1]]
        return node if node.end == len(hit) else self.tree.split(node, len(hit) - node.first_index)


class UnmappedMergeGroup(MatchedGroup):
    """Frees a block that the tree already has, while the request's table goes on naming it (pull request 142)."""

    def merge(self, request: Request, index: int, block_id: int, into_block_id: int) -> None:
        """Free the copy only: the table still leads to it, and the next owner writes other KV into it."""
        self.release(request, [block_id], [index], "merged")

    def free(self, request: Request, reason: FreeReason) -> None:
        """Free the table, except the entries whose blocks were freed as duplicates: they hold no reference."""
        table, path = request.block_tables[self.index], self.tree.held_by(request).blocks_to_here()
        for index, block_id in enumerate(path[: len(table)]):
            if table[index] != block_id:
                self._journal.record((table.__setitem__, index, table[index]))
                table[index] = self._pool.null_block
        super().free(request, reason)
