"""External tiers of scenarios: late loads, loads that nothing stops, and pages read only when the copy runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from labengine.core.block import Key
from labengine.core.connector import BlockKV, BlockTransfer
from labengine.engine.external.host import HostStore
from labengine.engine.external.late import Delayed, PendingLoad
from labengine.engine.external.store import StoreError


def late_host(steps: int = 1) -> Delayed:
    """Return a host tier whose loads take this many steps; a cancelled load writes nothing."""
    return Delayed(HostStore(), steps)


class LandsAnyway(Delayed):
    """Transfers that no abort can stop, as with RDMA: they land in the blocks for which they started."""

    def cancel(self, request_id: int) -> None:
        """Stop nothing; the transfer's end is reported as usual."""


class HostPages(HostStore):
    """Host memory of num_pages pages. A transfer reads its key's page even after the key's eviction."""

    def __init__(self, num_pages: int) -> None:
        super().__init__(max_blocks=num_pages)
        self.num_pages = num_pages
        self.pins: Counter[Key] = Counter()
        """Number of transfers under way per key; a pinned key is not evicted."""
        self.num_underflows = 0
        """Number of unpins without a pin."""
        self._page_of: dict[Key, int] = {}
        self._pages: dict[int, BlockKV | None] = {}

    def pin(self, transfers: Sequence[BlockTransfer]) -> None:
        """Keep the transfers' pages until `unpin`."""
        self.pins.update(transfer.key for transfer in transfers)
        self._note_pins(transfers)

    def unpin(self, transfers: Sequence[BlockTransfer]) -> None:
        """Give back a pin of each transfer; a count never falls below 0."""
        for transfer in transfers:
            self.num_underflows += self.pins[transfer.key] == 0
            self.pins[transfer.key] = max(0, self.pins[transfer.key] - 1)
        self._note_pins(transfers)

    def _note_pins(self, transfers: Sequence[BlockTransfer]) -> None:
        for transfer in transfers:
            self.log.note_pins(transfer.key, self.pins[transfer.key])

    def _get(self, key: Key) -> BlockKV | None:
        if key not in self._page_of:
            return super()._get(key)
        return self._pages[self._page_of[key]]

    def _put(self, key: Key, kv: BlockKV | None) -> None:
        pinned = [key for key, count in self.pins.items() if count]
        if len(pinned) == self.num_pages:
            raise StoreError("every page is being read")
        for other in pinned:
            self._touch(other)
        super()._put(key, kv)
        taken = {self._page_of[other] for other in self._contents if other != key}
        self._page_of[key] = page = min(set(range(self.num_pages)) - taken)
        self._pages[page] = kv


class ReadsWhenDue(Delayed):
    """Transfers that start at once and run when they are due, like copies on a separate stream."""

    inner: HostPages

    def __init__(self, inner: HostPages, steps: int = 1) -> None:
        super().__init__(inner, steps)

    def _begin(self, load: PendingLoad) -> None:
        """Queue the copy without reading anything now."""

    def _is_due(self, load: PendingLoad) -> bool:
        is_due = super()._is_due(load)
        if is_due:
            load.run(self.inner)
        return is_due


class PinsPages(ReadsWhenDue):
    """Pins the pages of a transfer from its start to its end."""

    def cancel(self, request_id: int) -> None:
        """Drop the load and its pins."""
        if request_id in self._pending:
            self.unpin(self._pending[request_id].transfers)
        super().cancel(request_id)

    def unpin(self, transfers: Sequence[BlockTransfer]) -> None:
        """Give back the pins of each transfer once, since they were taken once."""
        self.inner.unpin(transfers)

    def _begin(self, load: PendingLoad) -> None:
        self.inner.pin(load.transfers)

    def _is_due(self, load: PendingLoad) -> bool:
        is_due = super()._is_due(load)
        if is_due:
            self.unpin(load.transfers)
        return is_due
