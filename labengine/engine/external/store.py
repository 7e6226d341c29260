"""The common base of stores: loads are all or nothing, in the pool's layout; heads of chains are kept longest."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from labengine.config import ConfigError
from labengine.core.block import Key
from labengine.core.connector import BlockKV, BlockTransfer, Connector, KVAccess, LoadError


class StoreError(Exception):
    """One block could not be read or kept; the message says why, readably."""


def readable_bytes(num_bytes: int) -> str:
    """1536 -> 1.5 KiB."""
    size = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def readable_blocks(num_blocks: int) -> str:
    """1 block, 1,200 blocks."""
    return f"{num_blocks:,} block{'' if num_blocks == 1 else 's'}"


Layout = tuple[tuple[str, str, tuple[int, ...]], ...]
"""Name, dtype and shape of each of a block's tensors; empty on a simulated model."""


def layout_of(kv: BlockKV | None) -> Layout:
    """Return the names, dtypes and shapes of a block's tensors."""
    return tuple(sorted((name, str(tensor.dtype), tuple(tensor.shape)) for name, tensor in (kv or {}).items()))


class KVStore(Connector):
    """A synchronous tier that keeps blocks by key and removes the least recently used ones when room is needed.

    A use is a load or a save, not a look-up. Of blocks used together the later ones go first: a chain without its head
    is never found again. Engines with one fingerprint may use a store in turn.
    """

    def __init__(self) -> None:
        super().__init__()
        self._fingerprint: str | None = None
        self._layouts: dict[int, Layout] = {}

    def bind(self, fingerprint: str) -> None:
        """Serve this model's KV. Raises ConfigError when the store serves another model's, until it is closed."""
        if self._fingerprint not in (None, fingerprint):
            raise ConfigError(
                f"this store holds KV of {self._fingerprint!r} and cannot hold that of {fingerprint!r}: "
                "give the second engine a store of its own"
            )
        self._fingerprint = fingerprint

    def close(self) -> None:
        """Close the store; `bind` opens it again."""
        self._fingerprint = None
        self._layouts = {}

    def start_load_kv(self, loads: Sequence[BlockTransfer], kv: KVAccess) -> None:
        """Read all blocks, then write all; or drop unreadable ones, raise LoadError and write nothing."""
        try:
            contents = self._read_all(loads, kv)
            for transfer, content in zip(loads, contents, strict=True):
                kv.write_block(transfer.group, transfer.block_id, content)
        finally:
            self._settle({transfer.request_id for transfer in loads})
        for transfer in reversed(loads):
            self._touch(transfer.key)

    def save_kv(self, saves: Sequence[BlockTransfer], kv: KVAccess) -> tuple[BlockTransfer, ...]:
        """Keep new blocks; return those written now, without those that were removed again within this call."""
        written = {transfer for transfer in reversed(saves) if self._save(transfer, kv)}
        return tuple(transfer for transfer in saves if transfer in written and self.has(*transfer.key))

    def forget(self, transfers: Sequence[BlockTransfer]) -> None:
        """Drop these entries."""
        for transfer in transfers:
            self._drop(transfer.key)

    def _read_all(self, loads: Sequence[BlockTransfer], kv: KVAccess) -> list[BlockKV | None]:
        contents: list[BlockKV | None] = []
        failed: dict[BlockTransfer, str] = {}
        for transfer in loads:
            try:
                contents.append(self._read(transfer, kv))
            except (StoreError, OSError) as error:
                failed[transfer] = str(error)
        if failed:
            self.forget(tuple(failed))
            raise LoadError(tuple(failed), _reason(failed, len(loads)))
        return contents

    def _read(self, transfer: BlockTransfer, kv: KVAccess) -> BlockKV | None:
        content = self._get(transfer.key)
        expected = self._layout(transfer, kv)
        if layout_of(content) != expected:
            raise StoreError(_difference(layout_of(content), expected))
        return content

    def _layout(self, transfer: BlockTransfer, kv: KVAccess) -> Layout:
        """Return the layout of the group's blocks, read from the pool once."""
        if transfer.group not in self._layouts:
            self._layouts[transfer.group] = layout_of(kv.read_block(transfer.group, transfer.block_id))
        return self._layouts[transfer.group]

    def _save(self, transfer: BlockTransfer, kv: KVAccess) -> bool:
        if self.has(*transfer.key):
            self._touch(transfer.key)
            return False
        content = kv.read_block(transfer.group, transfer.block_id)
        try:
            self._put(transfer.key, content)
        except (StoreError, OSError) as error:
            self.note(f"{_name(transfer)} was not saved: {error}")
            return False
        return True

    @abstractmethod
    def _get(self, key: Key) -> BlockKV | None:
        """Return the content of an entry.

        Raises StoreError or OSError. May run on another thread than the other methods.
        """

    @abstractmethod
    def _put(self, key: Key, kv: BlockKV | None) -> None:
        """Make room, and keep the content as the most recently used. Raises StoreError or OSError."""

    @abstractmethod
    def _drop(self, key: Key) -> None:
        """Remove an entry, if it is there. Raises nothing."""

    @abstractmethod
    def _touch(self, key: Key) -> None:
        """Make an entry the most recently used, if it is there."""


def _reason(failed: dict[BlockTransfer, str], num_loads: int) -> str:
    transfer, why = next(iter(failed.items()))
    return f"{len(failed)} of {num_loads} blocks could not be loaded; {_name(transfer)}: {why}"


def _name(transfer: BlockTransfer) -> str:
    return f"block {transfer.block_hash.hex()[:12]} of group {transfer.group}"


def _difference(found: Layout, expected: Layout) -> str:
    """Return the first difference between an entry's layout and the pool's."""
    if not found or not expected:
        return (
            "it was saved without KV, by a simulated model" if expected else "a simulated model has no place for its KV"
        )
    have, want = next(
        (pair for pair in zip(found, expected, strict=False) if pair[0] != pair[1]), (found[-1], expected[-1])
    )
    return f"it holds {_readable(have)} where the pool has {_readable(want)}"


def _readable(tensor: tuple[str, str, tuple[int, ...]]) -> str:
    name, dtype, shape = tensor
    return f"{name} {dtype.removeprefix('torch.')}{list(shape)}"
