"""Snapshots of the core's own state, taken without its events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from labengine.core.block_pool import BlockPool
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.radix.prefix_tree import PrefixTree
from labengine.core.request import Request
from labengine.record.snapshot import BlockState, GroupState, NodeState, RequestState, Snapshot, hex_keys, map_key
from labengine.system.code_roles import Role, plays

plays(__name__, Role.NOT_UNDONE)


def take_snapshot(step: int, requests: Mapping[int, Request], manager: KVCacheManager) -> Snapshot:
    """Return the core's state as the contract's frozen record."""
    pool = manager.pool
    owners = _owners(requests, pool.null_block)
    entries = list(pool.prefix_map.items())
    return Snapshot(
        step=step,
        requests={request_id: _request_state(request) for request_id, request in requests.items()},
        blocks=tuple(
            BlockState(b.block_id, b.ref_count, hex_keys(b.keys), b.token_ids, owners.get(b.block_id, ()))
            for b in pool.blocks
        ),
        free_queue=walk(pool.free_queue, len(pool.blocks)),
        prefix_map={map_key(*key): ids for key, ids in entries},
        cached_free=tuple(
            sorted(map_key(*key) for key, ids in entries if not any(_is_used(pool, block_id) for block_id in ids))
        ),
        groups=tuple(GroupState(g.spec.kind, g.spec.block_size, g.spec.window) for g in manager.groups),
        null_block=pool.null_block,
        pins={} if pool.tree is None else dict.fromkeys(sorted(pool.tree.node_of), 1),
        tree=() if pool.tree is None else _nodes(pool.tree),
    )


def _nodes(tree: PrefixTree) -> tuple[NodeState, ...]:
    holders: dict[int, list[int]] = {}
    for request_id, node in tree.holds.items():
        holders.setdefault(node.node_id, []).append(request_id)
    return tuple(
        NodeState(
            node.node_id,
            0 if node.parent is None else node.parent.node_id,
            tuple(node.block_ids),
            node.num_locks,
            tuple(sorted(holders.get(node.node_id, ()))),
        )
        for node in sorted(tree.nodes.values(), key=lambda node: node.age)
    )


def walk(free_queue: Iterable[int], num_blocks: int) -> tuple[int, ...]:
    """Return the ids of a free queue, the head first. A circular queue is cut at the first repeated id."""
    block_ids = tuple(islice(free_queue, num_blocks + 1))
    if len(set(block_ids)) == len(block_ids):
        return block_ids
    seen: dict[int, None] = {}
    for block_id in block_ids:
        if block_id in seen:
            return (*seen, block_id)
        seen[block_id] = None
    raise AssertionError("the loop above meets a repeated id")


def _is_used(pool: BlockPool, block_id: int) -> bool:
    """Return True for a referenced block; False also for an invalid id, which a faulty part may have mapped."""
    return block_id in range(len(pool.blocks)) and pool.blocks[block_id].ref_count != 0


def _request_state(request: Request) -> RequestState:
    return RequestState(
        request.status.value,
        tuple(request.token_ids),
        request.num_prompt_tokens,
        request.num_computed_tokens,
        tuple(tuple(table) for table in request.block_tables),
        request.priority,
        request.drafts,
    )


def _owners(requests: Mapping[int, Request], null_block: int) -> dict[int, tuple[int, ...]]:
    owners: dict[int, tuple[int, ...]] = {}
    for request_id, request in sorted(requests.items()):
        for block_id in {block_id for table in request.block_tables for block_id in table} - {null_block}:
            owners[block_id] = (*owners.get(block_id, ()), request_id)
    return owners
