"""An index of a store's entries in order of use, which selects the entries to remove for a new one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock
from typing import Generic, TypeVar

from labengine.config import ConfigError, is_single_int

Entry = TypeVar("Entry")


class RecencyIndex(Generic[Entry]):
    """Entries and their sizes in bytes, the least recently used first, with caps (None: no cap). Thread-safe."""

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
        """Return all entries, the first to be removed first."""
        with self._lock:
            return list(self._sizes)

    def can_hold(self, num_bytes: int) -> bool:
        """Return whether an entry of this size fits under the caps when all others are removed."""
        return self.max_bytes is None or num_bytes <= self.max_bytes

    def make_room(self, num_bytes: int) -> list[Entry]:
        """Remove entries, the least recently used first, until one more of this size fits; return them."""
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
        """Remove an entry, if it is there."""
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
        raise ConfigError(f"{name} must be an integer of at least 1, or None for no limit; got {cap!r}")
    return int(cap)
