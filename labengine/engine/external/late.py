"""Asynchronous loads: delayed by a number of steps, or on threads beside the engine."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Event, Thread

from labengine.config import ConfigError, is_single_int
from labengine.core.block import Key
from labengine.core.connector import BlockKV, BlockTransfer, Connector, KVAccess, LoadError
from labengine.engine.external.store import readable_blocks

Samples = Mapping[int, BlockKV | None]
"""Per group, a block of the pool without values: the expected names, shapes and dtypes."""


class StagedBlocks:
    """Stands in for the pool while a connector loads; `write_into` then copies the content to the pool."""

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
        """Return True if content has arrived for each of these."""
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
        self.error: str | None = "the load was interrupted"
        """The reason why the load failed; None once everything has arrived."""
        self.finished = Event()
        self.num_polls = 0
        """Number of calls of get_finished since the start."""
        self.began_at = time.monotonic()

    def run(self, store: Connector) -> None:
        """Load into the staging memory; have the store forget the blocks that it failed to load."""
        try:
            self.error = self._load(store)
        except BaseException:
            _forget(store, self.transfers)
            raise
        finally:
            self.finished.set()

    def write_into(self, kv: KVAccess) -> str | None:
        """Write arrived content into the pool; return why this failed, or None."""
        if self.error is None:
            try:
                self.staging.write_into(kv)
            except Exception as error:
                self.error = f"{type(error).__name__}: {error}"
        return self.error

    def _load(self, store: Connector) -> str | None:
        """Return why the load failed, or None."""
        failed, reason = self.transfers, "the store returned without some of the blocks"
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


class ConnectorWrapper(Connector):
    """Forwards every call, but tracks itself which blocks are being loaded. `failures` are the inner connector's."""

    def __init__(self, inner: Connector) -> None:
        super().__init__()
        self.inner = inner
        self.failures = inner.failures
        self.log = inner.log
        self.loads_are_async = inner.loads_are_async

    def bind(self, fingerprint: str) -> None:
        """Bind the inner connector."""
        self.inner.bind(fingerprint)

    def has(self, group: int, block_hash: bytes) -> bool:
        """Return True if the inner connector has the content."""
        return self.inner.has(group, block_hash)

    def start_load_kv(self, loads: Sequence[BlockTransfer], kv: KVAccess) -> None:
        """Load by `_load`; a synchronous load is over on return."""
        try:
            self._load(loads, kv)
        finally:
            if not self.loads_are_async:
                self._settle({transfer.request_id for transfer in loads})

    def get_finished(self, kv: KVAccess) -> tuple[set[int], set[int]]:
        """Return the inner connector's finished and failed requests."""
        arrived, failed = self.inner.get_finished(kv)
        self._settle(arrived | failed)
        return arrived, failed

    def wait(self, timeout_s: float) -> None:
        """Wait for the inner connector."""
        self.inner.wait(timeout_s)

    def cancel(self, request_id: int) -> None:
        """Cancel the request's loads here and in the inner connector."""
        super().cancel(request_id)
        self.inner.cancel(request_id)

    def save_kv(self, saves: Sequence[BlockTransfer], kv: KVAccess) -> tuple[BlockTransfer, ...]:
        """Save to the inner connector."""
        return self.inner.save_kv(saves, kv)

    def forget(self, transfers: Sequence[BlockTransfer]) -> None:
        """Have the inner connector forget the keys."""
        self.inner.forget(transfers)

    def num_kept(self) -> int | None:
        """Return the inner connector's count."""
        return self.inner.num_kept()

    def describe(self) -> str:
        """Return the inner connector's line."""
        return self.inner.describe()

    def close(self) -> None:
        """Close the inner connector."""
        self.inner.close()

    def _load(self, loads: Sequence[BlockTransfer], kv: KVAccess) -> None:
        self.inner.start_load_kv(loads, kv)


class LateLoads(ConnectorWrapper):
    """Makes a synchronous connector asynchronous: it loads into staging memory, `get_finished` writes to the pool.

    Each request's load succeeds or fails alone. Saves stay synchronous. Raises ConfigError for an asynchronous
    connector.
    """

    def __init__(self, inner: Connector) -> None:
        super().__init__(inner)
        if inner.loads_are_async:
            raise ConfigError(f"{type(self).__name__}() needs a store with synchronous loads, got {inner.describe()}")
        self.loads_are_async = True
        self._pending: dict[int, PendingLoad] = {}
        self._distrusted: set[Key] = set()
        self._samples: dict[int, BlockKV | None] = {}

    def has(self, group: int, block_hash: bytes) -> bool:
        """Return True if the inner connector has the content and no load of it was cancelled."""
        return (group, block_hash) not in self._distrusted and super().has(group, block_hash)

    def get_finished(self, kv: KVAccess) -> tuple[set[int], set[int]]:
        """Write arrived loads, on this thread. An interrupted call has reported nothing and can be repeated."""
        for load in self._pending.values():
            load.num_polls += 1
        due = {request_id: load for request_id, load in self._pending.items() if self._is_due(load)}
        arrived = {request_id for request_id, load in due.items() if self._deliver(request_id, load, kv)}
        for request_id in due:
            del self._pending[request_id]
        self._settle(set(due))
        return arrived, set(due) - arrived

    def cancel(self, request_id: int) -> None:
        """Drop the request's staging memory; a load that still arrives is discarded."""
        self._pending.pop(request_id, None)
        super().cancel(request_id)

    def save_kv(self, saves: Sequence[BlockTransfer], kv: KVAccess) -> tuple[BlockTransfer, ...]:
        """Save to the inner connector; newly computed content may be loaded again."""
        self._distrusted.difference_update(transfer.key for transfer in saves)
        return super().save_kv(saves, kv)

    def close(self) -> None:
        """Drop all loads, and close the inner connector."""
        self._pending = {}
        self._distrusted = set()
        self._samples = {}
        super().close()

    def _load(self, loads: Sequence[BlockTransfer], kv: KVAccess) -> None:
        for request_id in dict.fromkeys(transfer.request_id for transfer in loads):
            if request_id in self._pending:
                raise RuntimeError(
                    f"request {request_id} still has a load in progress: call cancel({request_id}) first"
                )
            transfers = [transfer for transfer in loads if transfer.request_id == request_id]
            load = self._pending[request_id] = PendingLoad(transfers, self._samples_for(transfers, kv))
            self._begin(load)

    def _deliver(self, request_id: int, load: PendingLoad, kv: KVAccess) -> bool:
        """Write a finished load; return False, and note the reason, if it failed or took too long."""
        reason = load.write_into(kv) if load.finished.is_set() else self._give_up(load)
        if reason is not None:
            self.note(f"request {request_id}: {reason}")
        return reason is None

    def _give_up(self, load: PendingLoad) -> str:
        self._distrusted.update(transfer.key for transfer in load.transfers)
        return f"{readable_blocks(len(load.transfers))} did not arrive in time"

    def _samples_for(self, transfers: Sequence[BlockTransfer], kv: KVAccess) -> Samples:
        """Return the blocks' layouts. They are read here because only the engine's thread may read the pool."""
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
        """Return True if the outcome has to be reported now. A load that is unfinished by then has failed."""


class Delayed(LateLoads):
    """A store whose loads arrive at the n-th call of get_finished after their start; `steps` is n, at least 1."""

    def __init__(self, inner: Connector, steps: int = 1) -> None:
        super().__init__(inner)
        if not is_single_int(steps) or steps < 1:
            raise ConfigError(f"steps must be a positive integer, got {steps!r}")
        self.steps = int(steps)

    def describe(self) -> str:
        """Return the inner connector's line, and the delay."""
        return f"{super().describe()}; loads arrive {self.steps} step{'s' * (self.steps > 1)} late"

    def _begin(self, load: PendingLoad) -> None:
        load.run(self.inner)

    def _is_due(self, load: PendingLoad) -> bool:
        return load.num_polls >= self.steps


class Threaded(LateLoads):
    """A store that reads on daemon threads. A load that takes longer than timeout_s has failed, even if it arrives.

    Its keys count as missing until they are saved again, so requests do not wait for the same slow content twice.
    """

    def __init__(self, inner: Connector, timeout_s: float = 30.0) -> None:
        super().__init__(inner)
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 < timeout_s < math.inf:
            raise ConfigError(f"timeout_s must be a number of seconds above 0, got {timeout_s!r}")
        self.timeout_s = float(timeout_s)
        self._load_finished = Event()

    def wait(self, timeout_s: float) -> None:
        """Wait until a load has finished or was cancelled."""
        if not self._pending:
            return
        self._load_finished.clear()
        if any(self._is_due(load) for load in self._pending.values()):
            return
        seconds_left = min(load.began_at for load in self._pending.values()) + self.timeout_s - time.monotonic()
        self._load_finished.wait(max(0.0, min(timeout_s, seconds_left)))

    def describe(self) -> str:
        """Return the inner connector's line, and the time limit."""
        return f"{super().describe()}; read on threads, at most {self.timeout_s:g} s"

    def _begin(self, load: PendingLoad) -> None:
        Thread(target=self._run, args=(load,), name="labengine-load", daemon=True).start()

    def _run(self, load: PendingLoad) -> None:
        load.run(self.inner)
        self._load_finished.set()

    def _is_due(self, load: PendingLoad) -> bool:
        return load.finished.is_set() or time.monotonic() - load.began_at >= self.timeout_s
