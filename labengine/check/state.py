"""The state that rules are judged on: a protocol, a fold of events, and the running core with indices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Protocol

from labengine.core.block import Key
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.request import Request
from labengine.record.fold import Fold
from labengine.record.snapshot import GroupState

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

    def pins(self, block_id: int) -> int:
        """Return the block's references that no table holds."""
        ...

    def is_holding(self, request_id: int) -> bool:
        """Return whether a finished request holds its blocks for a connector."""
        ...

    def is_full(self, block_id: int) -> bool:
        """Return whether the block was registered as full, its tokens computed or about to be."""
        ...

    def is_own(self, block_id: int) -> bool:
        """Return whether the block may be written: a single table entry has it, and it holds no cached content."""
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
        """Return the blocks registered under a hash, even if the map does not serve them. May include former ones."""
        ...


class FoldState:
    """A fold's state. Indices are built on first use: create a new FoldState when the fold has changed."""

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

    def pins(self, block_id: int) -> int:
        return self.fold.pins.get(block_id, 0)

    def is_holding(self, request_id: int) -> bool:
        return request_id in self.fold.holding

    def is_full(self, block_id: int) -> bool:
        return self.exists(block_id) and bool(self.fold.block_tokens[block_id])

    def is_own(self, block_id: int) -> bool:
        return self.ref_count(block_id) == 1 and not self.is_full(block_id)

    def keys(self, block_id: int) -> tuple[Key, ...]:
        return self.fold.block_keys[block_id] if self.exists(block_id) else ()

    def mapped(self, key: Key) -> tuple[int, ...]:
        return self.fold.prefix_map.get(key, ())

    def entries(self, block_id: int) -> Collection[Entry]:
        return self._entries.get(block_id, ())

    def blocks_with(self, key: Key) -> Collection[int]:
        return self._blocks_with.get(key, ())

    def unknown_block_ids(self) -> list[int]:
        """Return the ids in block tables that the pool does not have."""
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


class LiveState:
    """The state of the core itself, read without its events. A broken free queue, which takes a walk, is not detected.

    The indices are updated by comparison: `follow_tables` for requests whose tables may have changed, `note_keys` for
    blocks whose hashes may have changed.
    """

    def __init__(self, manager: KVCacheManager, requests: Mapping[int, Request]) -> None:
        self.requests = requests
        self.groups = tuple(GroupState(g.spec.kind, g.spec.block_size, g.spec.window) for g in manager.groups)
        self.null_block = manager.pool.null_block
        self._pool = manager.pool
        self._blocks = manager.pool.blocks
        self._block_ids = range(len(self._blocks))
        self._tables: dict[int, list[list[int]]] = {}
        self._entries: dict[int, set[Entry]] = defaultdict(set)
        self._keys: dict[int, tuple[Key, ...]] = {}
        self._blocks_with: dict[Key, set[int]] = defaultdict(set)
        self.follow_tables(request_id for request_id, request in requests.items() if request.has_blocks)
        self.note_keys(block.block_id for block in self._blocks if block.keys)

    # -- the state -----------------------------------------------------------------------------------------------------

    def exists(self, block_id: int) -> bool:
        return block_id in self._block_ids

    def ref_count(self, block_id: int) -> int:
        return self._blocks[block_id].ref_count if self.exists(block_id) else 0

    def is_queued(self, block_id: int) -> bool:
        return self.exists(block_id) and block_id in self._pool.free_queue

    def pins(self, block_id: int) -> int:
        return self._pool.num_pins(block_id)

    def is_holding(self, request_id: int) -> bool:
        return False

    def is_full(self, block_id: int) -> bool:
        return self.exists(block_id) and bool(self._blocks[block_id].token_ids)

    def is_own(self, block_id: int) -> bool:
        if block_id not in self._block_ids:
            return False
        block = self._blocks[block_id]
        return block.ref_count == 1 and not block.token_ids

    def keys(self, block_id: int) -> tuple[Key, ...]:
        return self._blocks[block_id].keys if self.exists(block_id) else ()

    def mapped(self, key: Key) -> tuple[int, ...]:
        return self._pool.prefix_map.get(key, ())

    def entries(self, block_id: int) -> Collection[Entry]:
        return self._entries.get(block_id, ())

    def blocks_with(self, key: Key) -> Collection[int]:
        return self._blocks_with.get(key, ())

    # -- following the core --------------------------------------------------------------------------------------------

    def follow_tables(self, request_ids: Iterable[int]) -> tuple[set[int], set[int]]:
        """Return the requests whose tables, and the blocks whose entries, have changed since they were last seen."""
        changed: set[int] = set()
        blocks: set[int] = set()
        for request_id in request_ids:
            tables = self.requests[request_id].block_tables
            before = self._tables.get(request_id)
            if before == tables:
                continue
            changed.add(request_id)
            self._tables[request_id] = [list(table) for table in tables]
            for group, table in enumerate(tables):
                blocks.update(self._compare(request_id, group, before[group] if before else (), table))
            if not any(tables):
                del self._tables[request_id]
        return changed, blocks

    def forget(self, request_id: int) -> set[int]:
        """Drop a request and its table entries; return the blocks of those entries."""
        tables = enumerate(self._tables.pop(request_id, []))
        return {block_id for group, table in tables for block_id in self._compare(request_id, group, table, ())}

    def note_keys(self, block_ids: Iterable[int]) -> set[Key]:
        """Update the index of these blocks' hashes; return the old and the new hashes."""
        seen: set[Key] = set()
        for block_id in block_ids:
            before, now = self._keys.get(block_id, ()), self.keys(block_id)
            seen.update(before, now)
            if before != now:
                self._keys[block_id] = now
                for key in before:
                    self._blocks_with[key].discard(block_id)
                    if not self._blocks_with[key]:
                        del self._blocks_with[key]
                for key in now:
                    self._blocks_with[key].add(block_id)
        return seen

    def _compare(self, request_id: int, group: int, before: Sequence[int], now: Sequence[int]) -> Iterator[int]:
        start = len(before) if now[: len(before)] == before else 0
        for index in range(start, max(len(before), len(now))):
            old = before[index] if index < len(before) else self.null_block
            new = now[index] if index < len(now) else self.null_block
            if old == new:
                continue
            if old != self.null_block:
                self._entries[old].discard((request_id, group, index))
                yield old
            if new != self.null_block:
                self._entries[new].add((request_id, group, index))
                yield new
