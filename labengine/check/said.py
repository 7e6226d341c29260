"""Where the core is not what its events say: the folded stream held against the core, fact by fact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from typing import NamedTuple

from labengine.core.block import Key
from labengine.core.block_pool import BlockPool
from labengine.core.request import Request
from labengine.core.state import walk
from labengine.fold import Changes, Fold, RequestFold
from labengine.snapshot import map_key

MAX_FOUND = 50
"""Contradictions of one kind that a comparison looks for: where everything is wrong, the first ones say so."""

FRONT = 8
"""Ids at the head of the free queue that are compared in every step."""


class Contradiction(NamedTuple):
    """One fact of which the events say one thing, while the core holds another.

    about: what kind of fact it is; one of ABOUT. said, actual: both, in words that follow "that" and "but".
    """

    about: str
    said: str
    actual: str
    request_id: int | None = None
    block_id: int | None = None
    entry: tuple[int, int] | None = None
    """(group, table index), where the fact is an entry of the request's block table."""
    key: Key | None = None


ABOUT = ("ref_count", "queue", "order", "keys", "map", "table", "computed", "status", "tokens", "request")


def contradictions(
    fold: Fold, pool: BlockPool, requests: Mapping[int, Request], changes: Changes
) -> list[Contradiction]:
    """Every contradiction about what has changed: these blocks, requests and keys, and the head of the free queue."""
    found = [*_of_blocks(fold, pool, changes.blocks)]
    if not any(one.about == "queue" for one in found):
        found += _of_queue_front(fold, pool)
    found += _of_map(fold, pool, changes.keys)
    return [*found, *_of_requests(fold, requests, changes.requests, whole=False)]


def all_contradictions(
    fold: Fold, pool: BlockPool, requests: Mapping[int, Request], request_ids: Iterable[int]
) -> list[Contradiction]:
    """Every contradiction there is, about these requests; what is equal as a whole is not looked at one by one."""
    found: list[Contradiction] = []
    blocks = pool.blocks
    queue = walk(pool.free_queue, len(blocks))
    is_same_pool = (
        [block.ref_count for block in blocks] == fold.ref_counts
        and [block.keys for block in blocks] == fold.block_keys
        and tuple(fold.free_queue) == queue
    )
    if not is_same_pool:
        found += islice(_of_blocks(fold, pool, range(len(fold.ref_counts))), MAX_FOUND)
        if not any(one.about == "queue" for one in found):
            found += _of_order(fold, queue)
    found += _of_list(fold, pool)
    if pool.prefix_map != fold.prefix_map:
        found += islice(_of_map(fold, pool, {**pool.prefix_map, **fold.prefix_map}), MAX_FOUND)
    found += islice(_of_requests(fold, requests, request_ids, whole=True), MAX_FOUND)
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
            said = f"block {block_id} has ref_count {fold.ref_counts[block_id]}"
            yield Contradiction("ref_count", said, f"it is {block.ref_count}", block_id=block_id)
        if block.keys != fold.block_keys[block_id]:
            said = f"block {block_id} is known by {_named(fold.block_keys[block_id])}"
            yield Contradiction("keys", said, f"it is known by {_named(block.keys)}", block_id=block_id)


def _of_membership(block_id: int, is_queued: bool, queue: Sequence[int]) -> Contradiction:
    if not is_queued:
        return Contradiction("queue", f"block {block_id} is in the free queue", "it is not in it", block_id=block_id)
    place = f"at place {queue.index(block_id)}" if block_id in queue else "and a walk from its head does not meet it"
    said, actual = f"block {block_id} left the free queue", f"it is still in it, {place}"
    return Contradiction("queue", said, actual, block_id=block_id)


def _of_queue_front(fold: Fold, pool: BlockPool) -> Iterator[Contradiction]:
    front = tuple(islice(pool.free_queue, FRONT))
    if front != tuple(islice(fold.free_queue, FRONT)) or len(pool.free_queue) != len(fold.free_queue):
        yield from _of_order(fold, walk(pool.free_queue, len(pool.blocks)))
        yield from _of_list(fold, pool)


def _of_order(fold: Fold, queue: Sequence[int]) -> Iterator[Contradiction]:
    """The first place at which the two queues differ, where they hold the same blocks in another order."""
    for place, (said, actual) in enumerate(zip_longest(fold.free_queue, queue)):
        if said == actual:
            continue
        if said is not None and actual is not None:
            told = f"block {said} is at place {place} of the free queue"
            yield Contradiction("order", told, f"block {actual} is there", block_id=said)
        elif actual is not None:
            told = f"the free queue ends after {place} blocks"
            yield Contradiction("order", told, f"block {actual} follows", block_id=actual)
        else:
            told = f"block {said} is at place {place} of the free queue"
            yield Contradiction("order", told, f"the queue ends after {place} blocks", block_id=said)
        return


def _of_list(fold: Fold, pool: BlockPool) -> Iterator[Contradiction]:
    """What is wrong with the queue as a list, wherever its blocks are."""
    fault = pool.free_queue.fault()
    if fault is not None:
        yield Contradiction("queue", f"the free queue is a list of {len(fold.free_queue)} blocks", fault)


def _of_map(fold: Fold, pool: BlockPool, keys: Iterable[Key]) -> Iterator[Contradiction]:
    for key in keys:
        said, actual = fold.prefix_map.get(key, ()), pool.prefix_map.get(key, ())
        if said != actual:
            block_id = next(iter({*said, *actual} - ({*said} & {*actual})), None)
            told = f"the map leads from {_named([key])} to {_ids(said)}"
            yield Contradiction("map", told, f"it leads to {_ids(actual)}", block_id=block_id, key=key)


# -- requests ----------------------------------------------------------------------------------------------------------


def _of_requests(
    fold: Fold, requests: Mapping[int, Request], request_ids: Iterable[int], *, whole: bool
) -> Iterator[Contradiction]:
    for request_id in request_ids:
        said, actual = fold.requests.get(request_id), requests.get(request_id)
        if said is None and actual is None:
            continue
        if said is None or actual is None:
            there = "there is no such request" if actual is None else "it is there"
            told = f"request {request_id} {'was never added' if said is None else 'is there'}"
            yield Contradiction("request", told, there, request_id)
            continue
        yield from _of_request(request_id, said, actual, whole=whole)


def _of_request(request_id: int, said: RequestFold, actual: Request, *, whole: bool) -> Iterator[Contradiction]:
    for group, (told, table) in enumerate(zip(said.block_tables, actual.block_tables, strict=False)):
        if told != table:
            yield _of_table(request_id, group, told, table)
    if said.num_computed_tokens != actual.num_computed_tokens:
        counts = f"request {request_id} has {said.num_computed_tokens} computed tokens"
        yield Contradiction("computed", counts, f"it has {actual.num_computed_tokens}", request_id)
    if said.status != actual.status:
        yield Contradiction("status", f"request {request_id} is {said.status}", f"it is {actual.status}", request_id)
    if len(said.token_ids) != len(actual.token_ids) or (whole and said.token_ids != actual.token_ids):
        tokens = f"request {request_id} has {len(said.token_ids)} tokens"
        other = "others" if len(said.token_ids) == len(actual.token_ids) else f"{len(actual.token_ids)}"
        yield Contradiction("tokens", tokens, f"it has {other}", request_id)


def _of_table(request_id: int, group: int, said: Sequence[int], actual: Sequence[int]) -> Contradiction:
    """The first entry in which two block tables differ."""
    pairs = enumerate(zip_longest(said, actual))
    index, (told, found) = next((index, pair) for index, pair in pairs if pair[0] != pair[1])
    block_id = told if found is None or (told is not None and told >= 0) else found
    place = f"entry {index} of request {request_id}'s table" + (f" in group {group}" if group else "")
    return Contradiction(
        "table",
        f"{place} is {_entry(told)}",
        f"it is {_entry(found)}",
        request_id,
        block_id,
        (group, index),
    )


# -- words -------------------------------------------------------------------------------------------------------------


def _entry(block_id: int | None) -> str:
    return "not there" if block_id is None else "null" if block_id == -1 else f"block {block_id}"


def _named(keys: Sequence[Key]) -> str:
    return " and ".join(map_key(*key)[:12] for key in keys) or "no hash"


def _ids(block_ids: Sequence[int]) -> str:
    return f"block{'s' * (len(block_ids) != 1)} {', '.join(map(str, block_ids))}" if block_ids else "no block"
