"""mini-sglang's tables: a late merge forgets them."""

from __future__ import annotations

from labengine.core.radix.matching import MatchedGroup
from labengine.core.request import Request
from labengine.events import FreeReason


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
