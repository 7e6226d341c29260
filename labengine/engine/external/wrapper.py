"""A connector that wraps another one and forwards every call."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.connector import BlockTransfer, Connector, KVAccess


class ConnectorWrapper(Connector):
    """Forwards every call. It tracks by itself which blocks are being loaded; `failures` are the inner connector's."""

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
        """Return whether the inner connector has the content."""
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
