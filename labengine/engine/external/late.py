"""Loads that arrive later: what a step count and a thread have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from labengine.config import ConfigError
from labengine.core.block import Key
from labengine.core.connector import BlockKV, BlockTransfer, Connector, KVAccess
from labengine.engine.external.around import Around
from labengine.engine.external.sizes import readable_blocks
from labengine.engine.external.staging import PendingLoad, Samples


class LateLoads(Around):
    """Makes a synchronous connector asynchronous: it loads into staging memory, `get_finished` writes to the pool.

    Each request's load succeeds or fails alone. Saves stay synchronous. ConfigError for an inner one that is late too.
    """

    def __init__(self, inner: Connector) -> None:
        super().__init__(inner)
        if inner.loads_are_async:
            raise ConfigError(f"{type(self).__name__}() needs a store whose loads are synchronous: {inner.describe()}")
        self.loads_are_async = True
        self._pending: dict[int, PendingLoad] = {}
        self._distrusted: set[Key] = set()
        self._samples: dict[int, BlockKV | None] = {}

    def has(self, group: int, block_hash: bytes) -> bool:
        """What the inner one has, less what never came in time."""
        return (group, block_hash) not in self._distrusted and super().has(group, block_hash)

    def get_finished(self, kv: KVAccess) -> tuple[set[int], set[int]]:
        """Write what has arrived, on this thread. Interrupted, it has told nothing and can be called again."""
        for load in self._pending.values():
            load.num_polls += 1
        due = {request_id: load for request_id, load in self._pending.items() if self._is_due(load)}
        arrived = {request_id for request_id, load in due.items() if self._deliver(request_id, load, kv)}
        for request_id in due:
            del self._pending[request_id]
        self._settle(set(due))
        return arrived, set(due) - arrived

    def cancel(self, request_id: int) -> None:
        """Drop the request's staging memory: what still comes goes nowhere."""
        self._pending.pop(request_id, None)
        super().cancel(request_id)

    def save_kv(self, saves: Sequence[BlockTransfer], kv: KVAccess) -> tuple[BlockTransfer, ...]:
        """Save into the inner one; content that was computed anew may be hoped for again."""
        self._distrusted.difference_update(transfer.key for transfer in saves)
        return super().save_kv(saves, kv)

    def close(self) -> None:
        """Drop all loads, and close the inner one."""
        self._pending = {}
        self._distrusted = set()
        self._samples = {}
        super().close()

    def _load(self, loads: Sequence[BlockTransfer], kv: KVAccess) -> None:
        for request_id in dict.fromkeys(transfer.request_id for transfer in loads):
            if request_id in self._pending:
                raise RuntimeError(f"request {request_id} has a load under way: cancel({request_id}) comes first")
            transfers = [transfer for transfer in loads if transfer.request_id == request_id]
            load = self._pending[request_id] = PendingLoad(transfers, self._samples_for(transfers, kv))
            self._begin(load)

    def _deliver(self, request_id: int, load: PendingLoad, kv: KVAccess) -> bool:
        """Write a load that is over; False, and a note, when it failed or took too long."""
        reason = load.write_into(kv) if load.over.is_set() else self._give_up(load)
        if reason is not None:
            self.note(f"request {request_id}: {reason}")
        return reason is None

    def _give_up(self, load: PendingLoad) -> str:
        self._distrusted.update(transfer.key for transfer in load.transfers)
        return f"{readable_blocks(len(load.transfers))} did not come in time"

    def _samples_for(self, transfers: Sequence[BlockTransfer], kv: KVAccess) -> Samples:
        """Taken here because only the engine's thread may look at the pool."""
        for transfer in transfers:
            if transfer.group not in self._samples:
                content = kv.read_block(transfer.group, transfer.block_id)
                self._samples[transfer.group] = content and {
                    name: tensor.to("meta") for name, tensor in content.items()
                }
        return self._samples

    @abstractmethod
    def _begin(self, load: PendingLoad) -> None:
        """Have `load.run(self.inner)` called, once."""

    @abstractmethod
    def _is_due(self, load: PendingLoad) -> bool:
        """Return whether the outcome is to be told now. A load that is not over by then has failed."""
