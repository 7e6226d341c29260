"""Staging memory of asynchronous loads: a load that arrives too late writes there, not to the pool."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Event

from labengine.core.connector import BlockKV, BlockTransfer, Connector, KVAccess, LoadError

Samples = Mapping[int, BlockKV | None]
"""Per group, a block of the pool without values: the expected names, shapes and dtypes."""


class StagedBlocks:
    """Takes the pool's place while a connector loads; `write_into` then copies the content to the pool."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples
        self._blocks: dict[tuple[int, int], BlockKV | None] = {}

    def read_block(self, group: int, block_id: int) -> BlockKV | None:
        """Return a block of the group in the pool's form, without values."""
        return self._samples[group]

    def write_block(self, group: int, block_id: int, kv: BlockKV | None) -> None:
        """Keep the content."""
        self._blocks[group, block_id] = kv

    def has_all(self, transfers: Sequence[BlockTransfer]) -> bool:
        """Return whether content arrived for each of these."""
        return all((transfer.group, transfer.block_id) in self._blocks for transfer in transfers)

    def write_into(self, kv: KVAccess) -> None:
        """Write all content into the pool."""
        for (group, block_id), content in self._blocks.items():
            kv.write_block(group, block_id, content)


class PendingLoad:
    """One request's asynchronous load. `run` may be called on any thread; the outcome is set before `finished`."""

    def __init__(self, transfers: Sequence[BlockTransfer], samples: Samples) -> None:
        self.transfers = tuple(transfers)
        self.staging = StagedBlocks(samples)
        self.error: str | None = "the load was broken off"
        """Why the load failed; None once everything has arrived."""
        self.finished = Event()
        self.num_polls = 0
        """Calls of get_finished since the start."""
        self.began_at = time.monotonic()

    def run(self, store: Connector) -> None:
        """Load into the staging memory; have the store forget the blocks that it could not deliver."""
        try:
            self.error = self._load(store)
        except BaseException:
            _forget(store, self.transfers)
            raise
        finally:
            self.finished.set()

    def write_into(self, kv: KVAccess) -> str | None:
        """Write arrived content into the pool; return why that is not possible, or None."""
        if self.error is None:
            try:
                self.staging.write_into(kv)
            except Exception as error:
                self.error = f"{type(error).__name__}: {error}"
        return self.error

    def _load(self, store: Connector) -> str | None:
        """Return why the load failed, or None."""
        failed, reason = self.transfers, "the store came back short of some blocks"
        try:
            store.start_load_kv(self.transfers, self.staging)
            if self.staging.has_all(self.transfers):
                return None
        except LoadError as error:
            failed, reason = error.failed, str(error)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
        _forget(store, failed)
        return reason


def _forget(store: Connector, transfers: Sequence[BlockTransfer]) -> None:
    with suppress(Exception):  # the store may fail here too
        store.forget(transfers)
