"""The state of an engine at one moment, as frozen records and as plain JSON. See docs/contract.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

NULL_BLOCK = -1
"""Pads a block table where a group holds no block; never read by a kernel. Edition vllm reserves block 0 instead."""


def map_key(group: int, block_hash: bytes) -> str:
    """Return the prefix map's key as text: 'group:hex'."""
    return f"{group}:{block_hash.hex()}"


def hex_keys(keys: tuple[tuple[int, bytes], ...]) -> tuple[tuple[int, str], ...]:
    """Return a block's hashes as text. Fast for the many blocks of a large pool without hashes."""
    return tuple([(group, block_hash.hex()) for group, block_hash in keys]) if keys else ()


@dataclass(frozen=True, slots=True)
class RequestState:
    """One request: its tokens, the number of tokens with KV, its block table per KV-cache group, and its priority."""

    status: str
    token_ids: tuple[int, ...]
    num_prompt_tokens: int
    num_computed_tokens: int
    block_tables: tuple[tuple[int, ...], ...]
    priority: int = 0
    drafts: tuple[int, ...] = ()
    """Guesses of the tokens that follow."""


@dataclass(frozen=True, slots=True)
class BlockState:
    """One physical block. token_ids is empty until the block is full and hashed; owners are request ids."""

    block_id: int
    ref_count: int
    grouped_hashes: tuple[tuple[int, str], ...]
    """(group, hex) per hash of the block; more than one only where groups have different block sizes."""
    token_ids: tuple[int, ...]
    owners: tuple[int, ...]

    @property
    def block_hashes(self) -> tuple[str, ...]:
        """The hashes without their groups, in hex."""
        return tuple(block_hash for _, block_hash in self.grouped_hashes)


@dataclass(frozen=True, slots=True)
class GroupState:
    """One KV-cache group: its kind, block size and window."""

    kind: str
    block_size: int
    window: int | None

    @property
    def keeps_states(self) -> bool:
        """True if a block holds one state instead of the KV of block_size tokens."""
        return self.kind == "state"

    @property
    def num_slots(self) -> int:
        """Slots of a block: one per token, or one for a state."""
        return 1 if self.keeps_states else self.block_size

    def span(self, index: int) -> tuple[int, int]:
        """Return the positions [start, end) whose KV a full table entry holds; for a state, only the last one seen."""
        end = (index + 1) * self.block_size
        return end - self.num_slots, end


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node of the prefix tree: its blocks in table order, and the requests that lock it."""

    node_id: int
    parent_id: int
    """0 for the root, which is not listed."""
    block_ids: tuple[int, ...]
    num_locks: int
    """Requests whose lock begins at this node or below it."""
    locked_by: tuple[int, ...]
    """Requests whose lock begins at this node."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of the scheduler and the block pool.

    free_queue: block ids, the head first. prefix_map: 'group:hex' to block ids, the one served first.
    cached_free: keys of prefix_map whose blocks are all free; still ordinary hits.
    null_block: the id that pads block tables. If >= 0, it is a block that is neither free nor used.
    pins: number of references not held by any table, per block that has some: a prefix tree's, or in recordings of vLLM
    a connector's. holding: finished requests that hold blocks for a connector; only in recordings of vLLM.
    tree: the nodes of the prefix tree, the one used longest ago first; empty in editions without one.
    """

    step: int
    requests: dict[int, RequestState]
    blocks: tuple[BlockState, ...]
    free_queue: tuple[int, ...]
    prefix_map: dict[str, tuple[int, ...]]
    cached_free: tuple[str, ...]
    groups: tuple[GroupState, ...]
    null_block: int = NULL_BLOCK
    pins: dict[int, int] = field(default_factory=dict)
    holding: tuple[int, ...] = ()
    tree: tuple[NodeState, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types with string keys: json.loads(json.dumps(d)) == d."""
        tree = {"tree": [_node_dict(node) for node in self.tree]} if self.tree else {}
        return {
            "step": self.step,
            "requests": {str(request_id): _request_dict(r) for request_id, r in self.requests.items()},
            "blocks": [_block_dict(block) for block in self.blocks],
            "free_queue": list(self.free_queue),
            "prefix_map": {key: list(ids) for key, ids in self.prefix_map.items()},
            "cached_free": list(self.cached_free),
            "groups": [{"kind": g.kind, "block_size": g.block_size, "window": g.window} for g in self.groups],
            **tree,
        }

    @property
    def num_used_blocks(self) -> int:
        """Blocks held by at least one request: neither free nor evictable."""
        return len(self.blocks) - len(self.free_queue) - self.num_evictable_blocks - (self.null_block >= 0)

    @property
    def num_evictable_blocks(self) -> int:
        """Blocks of the prefix tree whose nodes no request locks."""
        return sum(len(node.block_ids) for node in self.tree if not node.num_locks)

    @property
    def lost_blocks(self) -> tuple[int, ...]:
        """Live full blocks that no look-up can find: hashed, but the map serves another block (nano-vLLM issue 219)."""
        live = [(b.block_id, [f"{group}:{key}" for group, key in b.grouped_hashes]) for b in self.blocks if b.ref_count]
        return tuple(i for i, keys in live if keys and not any(i in self.prefix_map.get(key, ()) for key in keys))


def _request_dict(request: RequestState) -> dict[str, Any]:
    fields = {
        "status": request.status,
        "token_ids": list(request.token_ids),
        "num_prompt_tokens": request.num_prompt_tokens,
        "num_computed_tokens": request.num_computed_tokens,
        "block_tables": [list(table) for table in request.block_tables],
        **({"priority": request.priority} if request.priority else {}),
    }
    return {**fields, "drafts": list(request.drafts)} if request.drafts else fields


def _block_dict(block: BlockState) -> dict[str, Any]:
    return {
        "block_id": block.block_id,
        "ref_count": block.ref_count,
        "block_hashes": list(block.block_hashes),
        "token_ids": list(block.token_ids),
        "owners": [str(owner) for owner in block.owners],
    }


def _node_dict(node: NodeState) -> dict[str, Any]:
    return {
        "node_id": node.node_id,
        "parent_id": node.parent_id,
        "block_ids": list(node.block_ids),
        "num_locks": node.num_locks,
        "locked_by": [str(request_id) for request_id in node.locked_by],
    }
