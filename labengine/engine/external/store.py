"""The common base of stores: loads are all or nothing, in the pool's layout; heads of chains stay longest."""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Generic, TypeVar

from labengine.config import ConfigError, is_single_int
from labengine.core.block import Key
from labengine.core.connector import BlockKV, BlockTransfer, Connector, KVAccess, LoadError

Entry = TypeVar("Entry")


class RecencyIndex(Generic[Entry]):
    """Entries and their sizes in bytes, least recently used first, with caps (None: no cap). Thread-safe."""

    def __init__(self, *, max_entries: int | None = None, max_bytes: int | None = None) -> None:
        self.max_entries = max_entries
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._sizes: OrderedDict[Entry, int] = OrderedDict()
        self._lock = Lock()  # a load on another thread touches entries while this one makes room

    def __len__(self) -> int:
        return len(self._sizes)

    def __contains__(self, entry: Entry) -> bool:
        return entry in self._sizes

    def entries(self) -> list[Entry]:
        """Return all entries in the order of removal."""
        with self._lock:
            return list(self._sizes)

    def can_hold(self, num_bytes: int) -> bool:
        """Return True if an entry of this size fits under the caps once all others are removed."""
        return self.max_bytes is None or num_bytes <= self.max_bytes

    def make_room(self, num_bytes: int) -> list[Entry]:
        """Remove entries, least recently used first, until one more of this size fits; return them."""
        victims = []
        with self._lock:
            while self._sizes and self._is_crowded(num_bytes):
                entry, size = self._sizes.popitem(last=False)
                self.num_bytes -= size
                victims.append(entry)
        return victims

    def add(self, entry: Entry, num_bytes: int) -> None:
        """Add an entry, or replace it, as the most recently used one."""
        with self._lock:
            self._remove(entry)
            self._sizes[entry] = num_bytes
            self.num_bytes += num_bytes

    def touch(self, entry: Entry) -> None:
        """Make an entry the most recently used one; an unknown entry stays unknown."""
        with self._lock:
            if entry in self._sizes:
                self._sizes.move_to_end(entry)

    def drop(self, entry: Entry) -> None:
        """Remove an entry if it exists."""
        with self._lock:
            self._remove(entry)

    def replace_all(self, entries: Iterable[tuple[Entry, int]]) -> None:
        """Replace all entries; the least recently used comes first."""
        with self._lock:
            self._sizes = OrderedDict(entries)
            self.num_bytes = sum(self._sizes.values())

    def _remove(self, entry: Entry) -> None:
        self.num_bytes -= self._sizes.pop(entry, 0)

    def _is_crowded(self, num_bytes: int) -> bool:
        too_many = self.max_entries is not None and len(self._sizes) >= self.max_entries
        return too_many or (self.max_bytes is not None and self.num_bytes + num_bytes > self.max_bytes)


def checked_cap(name: str, cap: int | None) -> int | None:
    """Return the cap as a Python int, or None for no cap. Raises ConfigError unless it is an integer >= 1 or None."""
    if cap is None:
        return None
    if not is_single_int(cap) or int(cap) < 1:
        raise ConfigError(f"{name} must be a positive integer, or None for no limit, got {cap!r}")
    return int(cap)


# -- the store ---------------------------------------------------------------------------------------------------------


class StoreError(Exception):
    """Raised for a block that could not be read or kept; the message gives the reason."""


def readable_bytes(num_bytes: int) -> str:
    """Return a size in readable units: 1536 -> 1.5 KiB."""
    size = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def readable_blocks(num_blocks: int) -> str:
    """Return a number of blocks as text: 1 block, 1,200 blocks."""
    return f"{num_blocks:,} block{'' if num_blocks == 1 else 's'}"


Layout = tuple[tuple[str, str, tuple[int, ...]], ...]
"""Name, dtype and shape of each of a block's tensors; empty on a simulated model."""


def layout_of(kv: BlockKV | None) -> Layout:
    """Return the names, dtypes and shapes of a block's tensors."""
    return tuple(sorted((name, str(tensor.dtype), tuple(tensor.shape)) for name, tensor in (kv or {}).items()))


class KVStore(Connector):
    """A synchronous tier that keeps blocks by key and removes the least recently used ones to make room.

    A use is a load or a save, not a look-up. Of blocks used together the later ones go first, as a chain without its
    head is never found again. Engines with the same fingerprint may use a store in turn.
    """

    def __init__(self) -> None:
        super().__init__()
        self.num_saved = 0
        """Number of blocks kept by save_kv since the store was opened."""
        self._fingerprint: str | None = None
        self._layouts: dict[int, Layout] = {}

    def bind(self, fingerprint: str) -> None:
        """Serve this model's KV. Raises ConfigError while the store serves another model; close it first."""
        if self._fingerprint not in (None, fingerprint):
            raise ConfigError(
                f"this store holds KV from {self._fingerprint!r}, so it cannot serve {fingerprint!r}: "
                "give the second engine a separate store"
            )
        self._fingerprint = fingerprint

    def close(self) -> None:
        """Close the store; `bind` opens it again."""
        self._fingerprint = None
        self._layouts = {}
        self.num_saved = 0

    def start_load_kv(self, loads: Sequence[BlockTransfer], kv: KVAccess) -> None:
        """Read all blocks, then write all. If some are unreadable, drop them and raise LoadError without writing."""
        try:
            contents = self._read_all(loads, kv)
            for transfer, content in zip(loads, contents, strict=True):
                kv.write_block(transfer.group, transfer.block_id, content)
        finally:
            self._settle({transfer.request_id for transfer in loads})
        for transfer in reversed(loads):
            self._touch(transfer.key)

    def save_kv(self, saves: Sequence[BlockTransfer], kv: KVAccess) -> tuple[BlockTransfer, ...]:
        """Keep new blocks; return the written ones, except those removed again within this call."""
        written = {transfer for transfer in reversed(saves) if self._save(transfer, kv)}
        kept = tuple(transfer for transfer in saves if transfer in written and self.has(*transfer.key))
        self.num_saved += len(kept)
        return kept

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

        Raises StoreError or OSError. May run on a different thread from the other methods.
        """

    @abstractmethod
    def _put(self, key: Key, kv: BlockKV | None) -> None:
        """Make room, and keep the content as the most recently used. Raises StoreError or OSError."""

    @abstractmethod
    def _drop(self, key: Key) -> None:
        """Remove an entry if it exists. Raises nothing."""

    @abstractmethod
    def _touch(self, key: Key) -> None:
        """Make an entry the most recently used, if it exists."""


def _reason(failed: dict[BlockTransfer, str], num_loads: int) -> str:
    transfer, why = next(iter(failed.items()))
    return f"{len(failed)} of {num_loads} blocks could not be loaded; {_name(transfer)}: {why}"


def _name(transfer: BlockTransfer) -> str:
    return f"block {transfer.block_hash.hex()[:12]} of group {transfer.group}"


def _difference(found: Layout, expected: Layout) -> str:
    """Return the first difference between an entry's layout and the pool's."""
    if not found or not expected:
        return (
            "it was saved by a simulated model, without KV" if expected else "a simulated model has no place for its KV"
        )
    have, want = next(
        (pair for pair in zip(found, expected, strict=False) if pair[0] != pair[1]), (found[-1], expected[-1])
    )
    return f"it holds {_readable(have)}, but the pool has {_readable(want)}"


def _readable(tensor: tuple[str, str, tuple[int, ...]]) -> str:
    name, dtype, shape = tensor
    return f"{name} {dtype.removeprefix('torch.')}{list(shape)}"
