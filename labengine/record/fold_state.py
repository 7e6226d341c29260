"""The state of an engine that a stream of events adds up to, and its snapshot."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Self

from labengine.record.snapshot import NULL_BLOCK, BlockState, GroupState, RequestState, Snapshot, hex_keys, map_key
from labengine.record.tree_fold import TreeFold
from labengine.system.code_roles import Role, plays

plays(__name__, Role.FOLLOWS_EVENTS)

FINISHED = "finished"

Key = tuple[int, bytes]
"""(group, block hash): a key of the prefix map."""


@dataclass(slots=True)
class RequestFold:
    """One request's state according to the events so far."""

    status: str
    token_ids: list[int]
    num_prompt_tokens: int
    num_computed_tokens: int
    block_tables: list[list[int]]
    priority: int = 0
    drafts: tuple[int, ...] = ()
    first_beam: int | None = None
    """The first request of its beam search."""
    images: tuple[tuple[int, int, str], ...] = ()
    """(position, length, identifier) of each image that placeholder tokens stand for, in order."""
    rejected: tuple[int, int] | None = None
    """Positions [start, end) with KV of rejected drafts, not yet overwritten."""

    def copy(self) -> RequestFold:
        """Return an independent copy."""
        tables = [list(table) for table in self.block_tables]
        return replace(self, token_ids=list(self.token_ids), block_tables=tables)

    def clear(self, status: str) -> None:
        """Empty the tables: a preempted or finished request holds no blocks."""
        self.status, self.num_computed_tokens, self.drafts, self.rejected = status, 0, (), None
        self.block_tables = [[] for _ in self.block_tables]


@dataclass(slots=True)
class Changes:
    """Ids of what has changed since the last `Fold.take_changes`: blocks, requests, map keys, nodes."""

    blocks: set[int] = field(default_factory=set)
    requests: set[int] = field(default_factory=set)
    keys: set[Key] = field(default_factory=set)
    entries: set[tuple[int, int]] = field(default_factory=set)
    """(request_id, block_id) of every added or removed table entry."""
    nodes: set[int] = field(default_factory=set)
    """Nodes of the prefix tree."""


class FoldState:
    """Requests, blocks, free queue and prefix map, and their changes since the last `take_changes`."""

    def __init__(self) -> None:
        self.step = 0
        self.requests: dict[int, RequestFold] = {}
        self.groups: tuple[GroupState, ...] = ()
        self.ref_counts: list[int] = []
        self.block_keys: list[tuple[Key, ...]] = []
        self.block_tokens: list[tuple[int, ...]] = []
        self.free_queue: OrderedDict[int, None] = OrderedDict()
        self.prefix_map: dict[Key, tuple[int, ...]] = {}
        self.null_block = NULL_BLOCK
        self.pins: dict[int, int] = {}
        """Per block: references not held by any table, if any."""
        self.holding: set[int] = set()
        """Finished requests that hold blocks for a connector."""
        self.tree = TreeFold()
        """The prefix tree, in editions that have one."""
        self.states: dict[int, int] = {}
        """Per block with a written state: the number of tokens that the state has seen."""
        self.spoiled: set[int] = set()
        """Blocks whose state has seen a rejected draft."""
        self.num_impossible = 0
        """Number of events that cannot follow those before them."""
        self.changes = Changes()

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        """Return the fold with a snapshot's state, for a listener that subscribes late."""
        fold = cls()
        fold.step, fold.groups, fold.null_block = snapshot.step, snapshot.groups, snapshot.null_block
        fold.requests = {
            request_id: RequestFold(
                r.status,
                list(r.token_ids),
                r.num_prompt_tokens,
                r.num_computed_tokens,
                [list(t) for t in r.block_tables],
                r.priority,
                r.drafts,
            )
            for request_id, r in snapshot.requests.items()
        }
        fold.ref_counts = [block.ref_count for block in snapshot.blocks]
        fold.block_tokens = [block.token_ids for block in snapshot.blocks]
        fold.free_queue = OrderedDict.fromkeys(snapshot.free_queue)
        fold.pins, fold.holding = dict(snapshot.pins), set(snapshot.holding)
        fold.tree = TreeFold.of(snapshot.tree)
        for text, ids in snapshot.prefix_map.items():
            group, hash_hex = text.split(":")
            fold.prefix_map[int(group), bytes.fromhex(hash_hex)] = ids
        fold.block_keys = [
            tuple([(group, bytes.fromhex(hash_hex)) for group, hash_hex in block.grouped_hashes])
            if block.grouped_hashes
            else ()
            for block in snapshot.blocks
        ]
        fold.assume_states()
        return fold

    def assume_states(self) -> None:
        """Assume that the blocks of requests hold the states that their table entries stand for."""
        for number in [number for number, group in enumerate(self.groups) if group.keeps_states]:
            size = self.groups[number].block_size
            for request in self.requests.values():
                for index, block_id in enumerate(request.block_tables[number]):
                    self.note_state(block_id, min((index + 1) * size, request.num_computed_tokens), index * size)

    def note_state(self, block_id: int, num_tokens: int, start: int = 0) -> None:
        """Note a block's state after num_tokens tokens. start: the entry is for states after more tokens than that."""
        if block_id != self.null_block and num_tokens > start:
            self.states[block_id] = num_tokens
            self.spoiled.discard(block_id)

    def copy(self) -> Self:
        """Return an independent copy with empty `changes`. Finished requests are shared until they change."""
        other = type(self)()
        other.step, other.groups, other.null_block = self.step, self.groups, self.null_block
        other.requests = {i: r if r.status == FINISHED else r.copy() for i, r in self.requests.items()}
        other.ref_counts, other.block_keys = list(self.ref_counts), list(self.block_keys)
        other.block_tokens, other.free_queue = list(self.block_tokens), self.free_queue.copy()
        other.prefix_map = dict(self.prefix_map)
        other.pins, other.holding = dict(self.pins), set(self.holding)
        other.tree = self.tree.copy()
        other.states, other.spoiled = dict(self.states), set(self.spoiled)
        return other

    def take_changes(self) -> Changes:
        """Return the changes since the last call, and start collecting again."""
        changes, self.changes = self.changes, Changes()
        return changes

    def snapshot(self) -> Snapshot:
        """Return the contract's frozen record of this state."""
        owners = self._owners()
        return Snapshot(
            step=self.step,
            requests={
                request_id: RequestState(
                    r.status,
                    tuple(r.token_ids),
                    r.num_prompt_tokens,
                    r.num_computed_tokens,
                    tuple(tuple(table) for table in r.block_tables),
                    r.priority,
                    r.drafts,
                )
                for request_id, r in self.requests.items()
            },
            blocks=tuple(
                BlockState(block_id, ref_count, hex_keys(keys), token_ids, owners.get(block_id, ()))
                for block_id, (ref_count, keys, token_ids) in enumerate(
                    zip(self.ref_counts, self.block_keys, self.block_tokens, strict=True)
                )
            ),
            free_queue=tuple(self.free_queue),
            prefix_map={map_key(*key): ids for key, ids in self.prefix_map.items()},
            cached_free=tuple(
                sorted(map_key(*key) for key, ids in self.prefix_map.items() if not any(map(self._is_used, ids)))
            ),
            groups=self.groups,
            null_block=self.null_block,
            pins=dict(self.pins),
            holding=tuple(sorted(self.holding)),
            tree=self.tree.states(),
        )

    @property
    def num_used_blocks(self) -> int:
        """Blocks neither free nor evictable, whatever a faulty part counts: "used" means this everywhere."""
        num_kept = len(self.free_queue) + self.tree.num_evictable
        return len(self.ref_counts) - num_kept - (self.null_block >= 0)

    def _is_used(self, block_id: int) -> bool:
        return block_id in range(len(self.ref_counts)) and self.ref_counts[block_id] != 0

    def _owners(self) -> dict[int, tuple[int, ...]]:
        owners: dict[int, tuple[int, ...]] = {}
        for request_id, request in sorted(self.requests.items()):
            held = {block_id for table in request.block_tables for block_id in table}
            for block_id in held - {self.null_block}:
                owners[block_id] = (*owners.get(block_id, ()), request_id)
        return owners
