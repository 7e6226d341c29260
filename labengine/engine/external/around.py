"""A connector around another one: what a subclass does not change, the inner one does."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.connector import BlockTransfer, Connector, KVAccess


class Around(Connector):
    """Passes everything on. It alone keeps account of which blocks are being loaded; `failures` are the inner one's."""

    def __init__(self, inner: Connector) -> None:
        super().__init__()
        self.inner = inner
        self.failures = inner.failures
        self.loads_are_async = inner.loads_are_async

    def bind(self, fingerprint: str) -> None:
        """Bind the inner one."""
        self.inner.bind(fingerprint)

    def has(self, group: int, block_hash: bytes) -> bool:
        """What the inner one has."""
        return self.inner.has(group, block_hash)

    def start_load_kv(self, loads: Sequence[BlockTransfer], kv: KVAccess) -> None:
        """Load as `_load` does."""
        try:
            self._load(loads, kv)
        finally:
            if not self.loads_are_async:
                self._settle({transfer.request_id for transfer in loads})

    def get_finished(self, kv: KVAccess) -> tuple[set[int], set[int]]:
        """What the inner one tells."""
        arrived, failed = self.inner.get_finished(kv)
        self._settle(arrived | failed)
        return arrived, failed

    def wait(self, timeout_s: float) -> None:
        """Wait for the inner one."""
        self.inner.wait(timeout_s)

    def cancel(self, request_id: int) -> None:
        """Nothing more for this request."""
        super().cancel(request_id)
        self.inner.cancel(request_id)

    def save_kv(self, saves: Sequence[BlockTransfer], kv: KVAccess) -> tuple[BlockTransfer, ...]:
        """Save into the inner one."""
        return self.inner.save_kv(saves, kv)

    def forget(self, transfers: Sequence[BlockTransfer]) -> None:
        """Have the inner one forget."""
        self.inner.forget(transfers)

    def describe(self) -> str:
        """Return the inner one's line."""
        return self.inner.describe()

    def close(self) -> None:
        """Close the inner one."""
        self.inner.close()

    def _load(self, loads: Sequence[BlockTransfer], kv: KVAccess) -> None:
        self.inner.start_load_kv(loads, kv)
