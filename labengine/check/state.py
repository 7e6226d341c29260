"""The state that rules are judged on: a protocol, and its implementation on a fold (live.py has the core's)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Protocol

from labengine.core.block import Key
from labengine.snapshot import GroupState
from labengine.timeline import Fold

Entry = tuple[int, int, int]
"""(request_id, group, index): one entry of one block table."""


class RequestView(Protocol):
    """The fields of a request that the rules need."""

    @property
    def status(self) -> str: ...
    @property
    def token_ids(self) -> Sequence[int]: ...
    @property
    def num_computed_tokens(self) -> int: ...
    @property
    def block_tables(self) -> Sequence[Sequence[int]]: ...


class State(Protocol):
    """An engine's state at one moment."""

    @property
    def groups(self) -> Sequence[GroupState]: ...
    @property
    def null_block(self) -> int: ...
    @property
    def requests(self) -> Mapping[int, RequestView]: ...

    def exists(self, block_id: int) -> bool:
        """Return whether the pool has this id: a faulty part may put any number into a table."""
        ...

    def ref_count(self, block_id: int) -> int:
        """Return the pool's reference count of the block."""
        ...

    def is_queued(self, block_id: int) -> bool:
        """Return whether the block is in the free queue."""
        ...

    def is_full(self, block_id: int) -> bool:
        """Return whether the block was registered as a full one, its tokens computed or about to be."""
        ...

    def keys(self, block_id: int) -> tuple[Key, ...]:
        """Return the hashes that the block is registered under."""
        ...

    def mapped(self, key: Key) -> tuple[int, ...]:
        """Return the blocks that the prefix map holds under a hash."""
        ...

    def entries(self, block_id: int) -> Collection[Entry]:
        """Return the table entries that point at the block."""
        ...

    def blocks_with(self, key: Key) -> Collection[int]:
        """Return the blocks registered under a hash, also ones that the map does not serve. May include former ones."""
        ...


class FoldState:
    """A fold's state. Indices are made on first use: make a new one when the fold has changed."""

    def __init__(self, fold: Fold) -> None:
        self.fold = fold
        self.groups = fold.groups
        self.null_block = fold.null_block
        self.requests = fold.requests
        self._block_ids = range(len(fold.ref_counts))

    def exists(self, block_id: int) -> bool:
        return block_id in self._block_ids

    def ref_count(self, block_id: int) -> int:
        return self.fold.ref_counts[block_id] if self.exists(block_id) else 0

    def is_queued(self, block_id: int) -> bool:
        return block_id in self.fold.free_queue

    def is_full(self, block_id: int) -> bool:
        return self.exists(block_id) and bool(self.fold.block_tokens[block_id])

    def keys(self, block_id: int) -> tuple[Key, ...]:
        return self.fold.block_keys[block_id] if self.exists(block_id) else ()

    def mapped(self, key: Key) -> tuple[int, ...]:
        return self.fold.prefix_map.get(key, ())

    def entries(self, block_id: int) -> Collection[Entry]:
        return self._entries.get(block_id, ())

    def blocks_with(self, key: Key) -> Collection[int]:
        return self._blocks_with.get(key, ())

    def unknown_block_ids(self) -> list[int]:
        """Return the ids in block tables that are not ids of the pool's blocks."""
        return [block_id for block_id in self._entries if not self.exists(block_id)]

    @cached_property
    def _entries(self) -> dict[int, list[Entry]]:
        entries: dict[int, list[Entry]] = defaultdict(list)
        for request_id, request in self.requests.items():
            for group, table in enumerate(request.block_tables):
                for index, block_id in enumerate(table):
                    if block_id != self.null_block:
                        entries[block_id].append((request_id, group, index))
        return entries

    @cached_property
    def _blocks_with(self) -> dict[Key, list[int]]:
        blocks: dict[Key, list[int]] = defaultdict(list)
        for block_id, keys in enumerate(self.fold.block_keys):
            for key in keys:
                blocks[key].append(block_id)
        return blocks
