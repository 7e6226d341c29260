"""Contradictions: facts in which the core differs from the fold of its events."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any, NamedTuple

from labengine.core.block import Key
from labengine.core.block_pool import BlockPool
from labengine.core.free_queue import FreeQueue, holds_in_order
from labengine.core.request import Request
from labengine.core.state import walk
from labengine.record.fold import Fold
from labengine.record.fold_state import Changes, RequestFold
from labengine.record.snapshot import map_key

MAX_FOUND = 50
"""Most contradictions of one kind per comparison: where everything is wrong, the first ones suffice."""

FRONT = 8
"""Ids at the head of the free queue that are compared in every step."""


class Contradiction(NamedTuple):
    """One fact that differs between the events' fold and the core.

    about: the kind of fact, one of ABOUT. claimed, actual: both values, as clauses of a sentence.
    """

    about: str
    claimed: str
    actual: str
    request_id: int | None = None
    block_id: int | None = None
    entry: tuple[int, int] | None = None
    """(group, table index) if the fact is an entry of the request's block table."""
    key: Key | None = None
    node_id: int | None = None


ABOUT = (
    *("ref_count", "queue", "order", "keys", "map", "table", "computed", "status", "tokens", "drafts", "request"),
    *("node", "locks", "hold", "recency"),
)


def contradictions(
    fold: Fold, pool: BlockPool, requests: Mapping[int, Request], changes: Changes
) -> list[Contradiction]:
    """Return every contradiction about the changed blocks, requests and keys, and about the head of the free queue."""
    found = [*_of_blocks(fold, pool, changes.blocks)]
    if not any(one.about == "queue" for one in found):
        found += _of_queue_front(fold, pool)
    found += _of_map(fold, pool, changes.keys)
    return [*found, *_of_requests(fold, requests, changes.requests, compare_all=False)]


def all_contradictions(
    fold: Fold, pool: BlockPool, requests: Mapping[int, Request], request_ids: Iterable[int]
) -> list[Contradiction]:
    """Return every contradiction about these requests, the blocks, the queue and the map.

    Equal lists are not compared item by item.
    """
    found: list[Contradiction] = []
    blocks = pool.blocks
    is_same_pool = (
        [block.ref_count for block in blocks] == fold.ref_counts
        and [block.keys for block in blocks] == fold.block_keys
        and _is_queue(pool.free_queue, fold.free_queue, len(blocks))
    )
    if not is_same_pool:
        found += islice(_of_blocks(fold, pool, range(len(fold.ref_counts))), MAX_FOUND)
        if not any(one.about == "queue" for one in found):
            found += _of_order(fold, walk(pool.free_queue, len(blocks)))
        found += _of_list(fold, pool)
    if pool.prefix_map != fold.prefix_map:
        found += islice(_of_map(fold, pool, {**pool.prefix_map, **fold.prefix_map}), MAX_FOUND)
    found += islice(_of_requests(fold, requests, request_ids, compare_all=True), MAX_FOUND)
    return found


# -- blocks and the queue ----------------------------------------------------------------------------------------------


def _of_blocks(fold: Fold, pool: BlockPool, block_ids: Iterable[int]) -> Iterator[Contradiction]:
    queue: tuple[int, ...] | None = None
    ids = range(len(pool.blocks))
    for block_id in block_ids:
        if block_id not in ids:
            continue
        block, is_queued = pool.blocks[block_id], block_id in pool.free_queue
        if (block_id in fold.free_queue) != is_queued:
            queue = walk(pool.free_queue, len(pool.blocks)) if queue is None else queue
            yield _of_membership(block_id, is_queued, queue)
        if block.ref_count != fold.ref_counts[block_id]:
            claimed = f"block {block_id} has ref_count {fold.ref_counts[block_id]}"
            yield Contradiction("ref_count", claimed, f"it is {block.ref_count}", block_id=block_id)
        if block.keys != fold.block_keys[block_id]:
            claimed = f"block {block_id} is known by {_named(fold.block_keys[block_id])}"
            yield Contradiction("keys", claimed, f"it is known by {_named(block.keys)}", block_id=block_id)


def _of_membership(block_id: int, is_queued: bool, queue: Sequence[int]) -> Contradiction:
    if not is_queued:
        return Contradiction("queue", f"block {block_id} is in the free queue", "it is not", block_id=block_id)
    place = f"at place {queue.index(block_id)}" if block_id in queue else "but it cannot be reached from the head"
    claimed, actual = f"block {block_id} left the free queue", f"it is still in it, {place}"
    return Contradiction("queue", claimed, actual, block_id=block_id)


def _of_queue_front(fold: Fold, pool: BlockPool) -> Iterator[Contradiction]:
    front = tuple(islice(pool.free_queue, FRONT))
    if front != tuple(islice(fold.free_queue, FRONT)) or len(pool.free_queue) != len(fold.free_queue):
        yield from _of_order(fold, walk(pool.free_queue, len(pool.blocks)))
        yield from _of_list(fold, pool)


def _is_queue(free_queue: Any, claimed: Collection[int], num_blocks: int) -> bool:
    """Return True if the free queue, which may be a user's class, has the claimed blocks in their order."""
    if isinstance(free_queue, FreeQueue) and holds_in_order(free_queue, claimed):
        return True
    return walk(free_queue, num_blocks) == tuple(claimed) and free_queue.fault() is None


def _of_order(fold: Fold, queue: Sequence[int]) -> Iterator[Contradiction]:
    """Yield the first place at which the two queues differ."""
    for place, (claimed, actual) in enumerate(zip_longest(fold.free_queue, queue)):
        if claimed == actual:
            continue
        if claimed is not None and actual is not None:
            text = f"block {claimed} is at place {place} of the free queue"
            yield Contradiction("order", text, f"block {actual} is there", block_id=claimed)
        elif actual is not None:
            text = f"the free queue ends after {place} blocks"
            yield Contradiction("order", text, f"block {actual} follows", block_id=actual)
        else:
            text = f"block {claimed} is at place {place} of the free queue"
            yield Contradiction("order", text, f"the queue ends after {place} blocks", block_id=claimed)
        return


def _of_list(fold: Fold, pool: BlockPool) -> Iterator[Contradiction]:
    """Yield the fault of a broken queue."""
    fault = pool.free_queue.fault()
    if fault is not None:
        yield Contradiction("queue", f"the free queue is a list of {len(fold.free_queue)} blocks", fault)


def _of_map(fold: Fold, pool: BlockPool, keys: Iterable[Key]) -> Iterator[Contradiction]:
    for key in keys:
        claimed, actual = fold.prefix_map.get(key, ()), pool.prefix_map.get(key, ())
        if claimed != actual:
            block_id = next(iter({*claimed, *actual} - ({*claimed} & {*actual})), None)
            text = f"the map leads from {_named([key])} to {_ids(claimed)}"
            yield Contradiction("map", text, f"it leads to {_ids(actual)}", block_id=block_id, key=key)


# -- requests ----------------------------------------------------------------------------------------------------------


def _of_requests(
    fold: Fold, requests: Mapping[int, Request], request_ids: Iterable[int], *, compare_all: bool
) -> Iterator[Contradiction]:
    for request_id in request_ids:
        claimed, actual = fold.requests.get(request_id), requests.get(request_id)
        if claimed is None and actual is None:
            continue
        if claimed is None or actual is None:
            text = f"request {request_id} {'was never added' if claimed is None else 'exists'}"
            found = "the engine has no such request" if actual is None else "the engine has it"
            yield Contradiction("request", text, found, request_id)
        elif (
            claimed.num_computed_tokens != actual.num_computed_tokens
            or claimed.status != actual.status
            or len(claimed.token_ids) != len(actual.token_ids)
            or claimed.block_tables != actual.block_tables
            or (compare_all and claimed.token_ids != actual.token_ids)
        ):
            yield from _of_request(request_id, claimed, actual, compare_all=compare_all)


def _of_request(
    request_id: int, claimed: RequestFold, actual: Request, *, compare_all: bool
) -> Iterator[Contradiction]:
    for group, tables in enumerate(zip(claimed.block_tables, actual.block_tables, strict=False)):
        if tables[0] != tables[1]:
            yield _of_table(request_id, group, *tables)
    if claimed.num_computed_tokens != actual.num_computed_tokens:
        counts = f"request {request_id} has {claimed.num_computed_tokens} computed tokens"
        yield Contradiction("computed", counts, f"it has {actual.num_computed_tokens}", request_id)
    if claimed.drafts != actual.drafts:
        guesses = f"request {request_id} has {len(claimed.drafts)} drafts"
        other = "different ones" if len(claimed.drafts) == len(actual.drafts) else f"{len(actual.drafts)}"
        yield Contradiction("drafts", guesses, f"it has {other}", request_id)
    if claimed.status != actual.status:
        yield Contradiction("status", f"request {request_id} is {claimed.status}", f"it is {actual.status}", request_id)
    if len(claimed.token_ids) != len(actual.token_ids) or (compare_all and claimed.token_ids != actual.token_ids):
        tokens = f"request {request_id} has {len(claimed.token_ids)} tokens"
        other = "different ones" if len(claimed.token_ids) == len(actual.token_ids) else f"{len(actual.token_ids)}"
        yield Contradiction("tokens", tokens, f"it has {other}", request_id)


def _of_table(request_id: int, group: int, claimed: Sequence[int], actual: Sequence[int]) -> Contradiction:
    """Return the first entry in which two block tables differ."""
    pairs = enumerate(zip_longest(claimed, actual))
    index, (folded, found) = next((index, pair) for index, pair in pairs if pair[0] != pair[1])
    block_id = folded if found is None or (folded is not None and folded >= 0) else found
    place = f"entry {index} of request {request_id}'s table" + (f" in group {group}" if group else "")
    return Contradiction(
        "table",
        f"{place} is {_entry(folded)}",
        f"it is {_entry(found)}",
        request_id,
        block_id,
        (group, index),
    )


# -- texts -------------------------------------------------------------------------------------------------------------


def _entry(block_id: int | None) -> str:
    return "not there" if block_id is None else "null" if block_id == -1 else f"block {block_id}"


def _named(keys: Sequence[Key]) -> str:
    return " and ".join(map_key(*key)[:12] for key in keys) or "no hash"


def _ids(block_ids: Sequence[int]) -> str:
    return f"block{'s' * (len(block_ids) != 1)} {', '.join(map(str, block_ids))}" if block_ids else "no block"
