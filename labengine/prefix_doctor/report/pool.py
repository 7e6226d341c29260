"""The pool in three numbers: blocks in use, blocks kept only for their cached content, and free blocks without."""

from __future__ import annotations

from collections.abc import Iterable

from labengine.record.fold import Fold


class PoolCounts:
    """The three numbers of a state, kept up to date as its blocks change. What a prefix tree can evict is not used."""

    def __init__(self, state: Fold) -> None:
        self._state, self._cached_free = state, set[int]()
        self.update(range(len(state.ref_counts)))

    @property
    def counts(self) -> dict[str, int]:
        """Return the numbers by their names."""
        state, num_cached = self._state, len(self._cached_free)
        cached_free, free = num_cached + state.tree.num_evictable, len(state.free_queue) - num_cached
        return {"used": state.num_used_blocks, "cached_free": cached_free, "free": free}

    def update(self, block_ids: Iterable[int]) -> None:
        """Look at these blocks again, which have changed."""
        for block_id in block_ids:
            if block_id in self._state.free_queue and self._state.block_keys[block_id]:
                self._cached_free.add(block_id)
            else:
                self._cached_free.discard(block_id)
