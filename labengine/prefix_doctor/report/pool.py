"""The pool in three numbers: blocks in use, free blocks with cached content, and free blocks without."""

from __future__ import annotations

from collections.abc import Iterable

from labengine.record.fold import Fold


class PoolCounts:
    """The three numbers of a state, kept up to date as its blocks change."""

    def __init__(self, state: Fold) -> None:
        self.counts = {"used": 0, "cached_free": 0, "free": 0}
        self._state, self._kinds = state, dict[int, str]()
        self.update(range(len(state.ref_counts)))

    def update(self, block_ids: Iterable[int]) -> None:
        """Count these blocks, which have changed, again."""
        for block_id in block_ids:
            if block_id == self._state.null_block:
                continue
            if (known := self._kinds.get(block_id)) is not None:
                self.counts[known] -= 1
            self._kinds[block_id] = self._kind(block_id)
            self.counts[self._kinds[block_id]] += 1

    def _kind(self, block_id: int) -> str:
        if block_id not in self._state.free_queue:
            return "used"
        return "cached_free" if self._state.block_keys[block_id] else "free"
