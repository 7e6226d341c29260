"""States of another engine: one number for all that differ only by names, and how many there were."""

from __future__ import annotations

import math

from labengine.record.fold import Fold
from labengine.record.fold_state import FINISHED

NUM_BITS = 1 << 28
"""Bits of the count: 32 MiB, good for a hundred million states."""


def fold_key(fold: Fold, scope: str) -> int:
    """Return a hash of queues, tables, content and free order; blocks count by the order in which these name them."""
    names: dict[int, int] = {fold.null_block: -1}
    requests = [request for request in fold.requests.values() if request.status != FINISHED]
    tables = []
    for request in requests:
        for table in request.block_tables:
            tables.append(tuple([names.setdefault(block_id, len(names)) for block_id in table]))
    queue = tuple([names.setdefault(block_id, len(names)) for block_id in fold.free_queue])
    held = tuple([(one.status, one.num_computed_tokens, tuple(one.token_ids)) for one in requests])
    blocks = tuple([(fold.ref_counts[i], fold.block_keys[i]) for i in names if 0 <= i < len(fold.ref_counts)])
    return hash((scope, held, tuple(tables), queue, blocks))


class DistinctStates:
    """Counts distinct numbers in bounded memory, by linear counting: within 0.1 % up to a hundred million."""

    def __init__(self, num_bits: int = NUM_BITS) -> None:
        self._num_bits = num_bits
        self._bits = bytearray(num_bits // 8)
        self._num_set = 0

    def add(self, key: int) -> None:
        """Count a number."""
        place, bit = divmod(key % self._num_bits, 8)
        if not self._bits[place] >> bit & 1:
            self._bits[place] |= 1 << bit
            self._num_set += 1

    @property
    def count(self) -> int:
        """About how many different numbers were added."""
        left = max(1, self._num_bits - self._num_set)
        return round(-self._num_bits * math.log(left / self._num_bits))
