"""Which requests have a block in which of their tables."""

from __future__ import annotations

from collections.abc import Iterable

from labengine.record.fold import Fold


class Owners:
    """The owners of blocks, as of the last `update`: by request and block, the groups whose tables have the block."""

    def __init__(self, fold: Fold) -> None:
        self._fold = fold
        self._held: dict[int, dict[int, tuple[int, ...]]] = {}
        self._owners: dict[int, set[int]] = {}
        for request_id, request in fold.requests.items():
            self.update(request_id, {block_id for table in request.block_tables for block_id in table})

    def of(self, block_id: int) -> tuple[int, ...]:
        """Return the requests that have a block in a table."""
        return tuple(sorted(self._owners.get(block_id, ())))

    def groups_of(self, block_id: int) -> tuple[int, ...]:
        """Return the groups whose tables have a block."""
        owners = self._owners.get(block_id, ())
        return tuple(sorted({group for owner in owners for group in self._held[owner].get(block_id, ())}))

    def update(self, request_id: int, block_ids: Iterable[int]) -> None:
        """Note which of these blocks a request has in which tables."""
        request, held = self._fold.requests.get(request_id), self._held.setdefault(request_id, {})
        tables = request.block_tables if request is not None else ()
        for block_id in block_ids:
            groups = tuple(group for group, table in enumerate(tables) if block_id in table)
            if block_id == self._fold.null_block or groups == held.get(block_id, ()):
                continue
            if groups:
                held[block_id] = groups
                self._owners.setdefault(block_id, set()).add(request_id)
            else:
                del held[block_id]
                self._owners[block_id].discard(request_id)
        if not held:
            del self._held[request_id]
