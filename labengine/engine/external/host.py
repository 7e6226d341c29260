"""The host tier: blocks' KV in host memory."""

from __future__ import annotations

from labengine.core.block import Key
from labengine.core.connector import BlockKV
from labengine.engine.external.store import (
    KVStore,
    RecencyIndex,
    StoreError,
    checked_cap,
    readable_blocks,
    readable_bytes,
)


class HostStore(KVStore):
    """Holds the tensors returned by the pool's reader (pinned ones stay pinned), so that loads are exact.

    max_blocks, max_bytes: caps on entries and on KV bytes; None means no cap. Raises ConfigError unless they are
    positive integers.
    """

    def __init__(self, max_blocks: int | None = None, max_bytes: int | None = None) -> None:
        super().__init__()
        self._index: RecencyIndex[Key] = RecencyIndex(
            max_entries=checked_cap("max_blocks", max_blocks), max_bytes=checked_cap("max_bytes", max_bytes)
        )
        self._contents: dict[Key, BlockKV | None] = {}

    def __len__(self) -> int:
        """Return the number of blocks held."""
        return len(self._index)

    @property
    def num_bytes(self) -> int:
        """Bytes of KV held."""
        return self._index.num_bytes

    def has(self, group: int, block_hash: bytes) -> bool:
        """Return True if the store holds the content."""
        return (group, block_hash) in self._index

    def num_kept(self) -> int | None:
        """Return the number of saves since the store was opened empty; all its content comes from them."""
        return self.num_saved

    def describe(self) -> str:
        """Return the blocks and bytes held, and their caps."""
        cap_blocks, cap_bytes = self._index.max_entries, self._index.max_bytes
        blocks = f"{len(self):,} of {readable_blocks(cap_blocks)}" if cap_blocks else readable_blocks(len(self))
        amount = readable_bytes(self.num_bytes) + (f" of {readable_bytes(cap_bytes)}" if cap_bytes else "")
        return f"host memory: {blocks}, {amount}"

    def close(self) -> None:
        """Release all KV."""
        super().close()
        self._index.replace_all([])
        self._contents = {}

    def _get(self, key: Key) -> BlockKV | None:
        try:
            return self._contents[key]
        except KeyError:
            raise StoreError("the store no longer holds it") from None

    def _put(self, key: Key, kv: BlockKV | None) -> None:
        num_bytes = sum(tensor.nbytes for tensor in (kv or {}).values())
        if not self._index.can_hold(num_bytes):
            raise StoreError(f"max_bytes={self._index.max_bytes} is less than one block ({num_bytes} bytes)")
        for victim in self._index.make_room(num_bytes):
            self._contents.pop(victim, None)
            self.log.note_dropped(victim)
        self._contents[key] = kv
        self._index.add(key, num_bytes)

    def _drop(self, key: Key) -> None:
        if key in self._index:
            self.log.note_dropped(key)
        self._index.drop(key)
        self._contents.pop(key, None)

    def _touch(self, key: Key) -> None:
        self._index.touch(key)
