"""The disk tier: KV in a folder that outlives the process, one safetensors file per block."""

from __future__ import annotations

import time
from os import PathLike

from labengine.config import ConfigError, checked_path
from labengine.core.block import Key
from labengine.core.connector import BlockKV
from labengine.engine.external.block_files import BlockFolder, decode, encode, file_name, key_of, namespace_of
from labengine.engine.external.store import (
    KVStore,
    RecencyIndex,
    StoreError,
    checked_cap,
    readable_blocks,
    readable_bytes,
)

SAVES_BETWEEN_READINGS = 256
"""Number of saves between two readings of the folder, which other processes may have changed."""


class DiskStore(KVStore):
    """Blocks of any number of models under `path`; each model sees only its own. Least recently used files go first.

    max_bytes caps all files in the folder together; None means no cap. Several processes may use one folder: each
    applies the cap to the files it knows, and a file removed by another process is a failed load. Raises ConfigError if
    the path is a file, or if the cap is not a positive integer. Nothing is read or written before `bind`.
    """

    def __init__(self, path: str | PathLike[str], max_bytes: int | None = 4 * 2**30) -> None:
        super().__init__()
        self.path = checked_path("path", path).expanduser()
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path} is a file; a disk store needs a folder, which it creates if necessary")
        self._folder = BlockFolder(self.path)
        self._index: RecencyIndex[str] = RecencyIndex(max_bytes=checked_cap("max_bytes", max_bytes))
        self._namespace = ""
        self._last_access_ns = 0
        self._num_saves = 0

    def __len__(self) -> int:
        """Return the number of blocks of the bound model."""
        return sum(name.startswith(f"{self._namespace}/") for name in self._index.entries())

    @property
    def num_bytes(self) -> int:
        """Bytes of all files in the folder, other models' included."""
        return self._index.num_bytes

    def bind(self, fingerprint: str) -> None:
        """Serve this model's KV, including earlier files. Raises ConfigError if the store serves another model."""
        super().bind(fingerprint)
        self._namespace = namespace_of(fingerprint)
        self._folder.clean()
        self._reread_folder()

    def has(self, group: int, block_hash: bytes) -> bool:
        """Return True if the content was in the folder at its last reading. Does not touch the disk."""
        return file_name(self._namespace, (group, block_hash)) in self._index

    def describe(self) -> str:
        """Return the folder, the number of this model's blocks, and the bytes of all files."""
        cap = "" if self._index.max_bytes is None else f" of {readable_bytes(self._index.max_bytes)}"
        blocks, amount = readable_blocks(len(self)), readable_bytes(self.num_bytes)
        return f"disk, {self.path}: {blocks} of this model, {amount}{cap} in total"

    def close(self) -> None:
        """Forget the folder's content, but keep the files."""
        super().close()
        self._index.replace_all([])
        self._namespace = ""

    def _get(self, key: Key) -> BlockKV | None:
        fingerprint = self._bound()
        try:
            data = self._folder.read(file_name(self._namespace, key))
        except FileNotFoundError:
            raise StoreError("its file no longer exists") from None
        return decode(fingerprint, key, data)

    def _put(self, key: Key, kv: BlockKV | None) -> None:
        data, name = encode(self._bound(), key, kv), file_name(self._namespace, key)
        if not self._index.can_hold(len(data)):
            raise StoreError(f"max_bytes={self._index.max_bytes} is less than one block's file ({len(data)} bytes)")
        self._make_room(len(data))
        self._folder.write(name, data, self._now())
        self._index.add(name, len(data))
        self._num_saves += 1
        if self._num_saves % SAVES_BETWEEN_READINGS == 0:
            self._reread_folder()

    def _drop(self, key: Key) -> None:
        self._remove(file_name(self._namespace, key))

    def _touch(self, key: Key) -> None:
        name = file_name(self._namespace, key)
        self._index.touch(name)
        self._folder.mark_accessed(name, self._now())

    def _reread_folder(self) -> None:
        """Read the folder again, and apply the cap."""
        self._index.replace_all(self._folder.files())
        self._make_room(0)

    def _make_room(self, num_bytes: int) -> None:
        for victim in self._index.make_room(num_bytes):
            self._remove(victim)

    def _remove(self, name: str) -> None:
        if (key := key_of(self._namespace, name)) is not None:
            self.log.note_dropped(key)
        self._index.drop(name)
        try:
            self._folder.remove(name)
        except OSError as error:
            self.note(f"{name} could not be removed: {error.strerror}")

    def _now(self) -> int:
        """Return nanoseconds since the epoch, strictly increasing, to order the uses."""
        self._last_access_ns = max(time.time_ns(), self._last_access_ns + 1)
        return self._last_access_ns

    def _bound(self) -> str:
        if self._fingerprint is None:
            raise StoreError("the store is closed, or bind(fingerprint) has not been called yet")
        return self._fingerprint
