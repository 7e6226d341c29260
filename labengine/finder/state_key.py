"""State keys: one number for all states that differ only in the names of requests and blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from labengine.check.slot_memory import SlotMemory
from labengine.core.block import Block, Prefix
from labengine.core.parts import parts_of
from labengine.core.radix.node import Node
from labengine.core.request import Request, RequestStatus
from labengine.core.scheduler import Scheduler

_ATOMS = (int, str, bytes, float, bool, type(None))


def state_key(scheduler: Scheduler, memory: SlotMemory, known: Mapping[type, frozenset[str]]) -> int:
    """Return a hash of everything that later decisions and checks can depend on.

    Requests count by their place in the queues and blocks by their order in tables and free queue, so that the numbers
    themselves do not matter. Finished requests count only if they still hold blocks. known: attributes of production's
    parts; any other attribute of a part belongs to its state.
    """
    pool = scheduler.manager.pool
    requests = _open_requests(scheduler)
    names: dict[int, int] = {pool.null_block: -1}
    for request in requests:
        for table in request.block_tables:
            for block_id in table:
                names.setdefault(block_id, len(names))
    queue = tuple(pool.free_queue)
    for block_id in queue:
        names.setdefault(block_id, len(names))
    nodes = [] if pool.tree is None else sorted(pool.tree.nodes.values(), key=lambda node: node.age)
    for node in nodes:
        for block_id in node.block_ids:
            names.setdefault(block_id, len(names))
    for block in pool.blocks:  # a leaked block is in no table and not in the queue
        names.setdefault(block.block_id, len(names))
    numbers = {request.request_id: number for number, request in enumerate(requests)}
    return hash(
        (
            tuple([_request(request, names) for request in requests]),
            (len(scheduler.running), len(scheduler.waiting), scheduler.beside_queues()),
            tuple([_siblings(scheduler, request, numbers) for request in requests] if scheduler.siblings else ()),
            _searches(scheduler, requests, numbers),
            tuple([group.beside_table(one) for group in scheduler.manager.groups for one in requests]),
            tuple([names[block_id] for block_id in queue]),
            frozenset([_block(pool.blocks[i], name, memory) for i, name in names.items() if 0 <= i < len(pool.blocks)]),
            frozenset((key, tuple([names.get(i, i) for i in ids])) for key, ids in pool.prefix_map.items()),
            tuple([_node(node, names) for node in nodes]),
            tuple([_named(pool.tree.holds.get(one.request_id), names) for one in requests]) if pool.tree else (),
            _external(scheduler, numbers),
            _urgency(requests),
            tuple(own_state(part, known) for part in parts_of(scheduler)),
        )
    )


def attributes_of(part: object) -> frozenset[str]:
    """Return the names of an object's attributes, without its class's."""
    return frozenset(getattr(part, "__dict__", ()))


def own_state(part: object, known: Mapping[type, frozenset[str]]) -> object:
    """Return the attributes that a part has and production's part lacks, as a comparable value."""
    base = next((cls for cls in type(part).__mro__ if cls in known), None)
    extra = attributes_of(part) - (known[base] if base is not None else frozenset())
    if not extra:
        return ()
    return tuple((name, frozen(getattr(part, name))) for name in sorted(extra))


def frozen(value: object, depth: int = 6) -> object:
    """Return any value in a hashable and comparable form; objects by their attributes."""
    if isinstance(value, _ATOMS):
        return value
    if depth == 0:
        return type(value).__name__
    if isinstance(value, Block):
        return ("block", value.block_id)
    if isinstance(value, Request):
        return ("request", value.request_id)
    if isinstance(value, Mapping):
        return tuple((frozen(key, depth - 1), frozen(item, depth - 1)) for key, item in value.items())
    if isinstance(value, (set, frozenset)):
        return frozenset(frozen(item, depth - 1) for item in value)
    if isinstance(value, Iterable) and not hasattr(value, "__next__"):
        return tuple(frozen(item, depth - 1) for item in value)
    if is_dataclass(value):
        return tuple(frozen(getattr(value, field.name), depth - 1) for field in fields(value))
    return (type(value).__name__, *(frozen(item, depth - 1) for item in getattr(value, "__dict__", {}).values()))


def _open_requests(scheduler: Scheduler) -> list[Request]:
    queued = [*scheduler.running, *scheduler.waiting, *scheduler.external.loading]
    seen = set(map(id, queued))
    others = (request for request in scheduler.requests.values() if id(request) not in seen)
    return [*queued, *(one for one in others if one.status is not RequestStatus.FINISHED or one.has_blocks)]


def _node(node: Node, names: Mapping[int, int]) -> tuple[Any, ...]:
    """Return a node of the prefix tree; the tree's order is that of recency."""
    return _named(node.parent, names), tuple([names[block_id] for block_id in node.block_ids]), node.num_locks


def _named(node: Node | None, names: Mapping[int, int]) -> int:
    """Return the name of a node's first block; -1 for the root."""
    return -1 if node is None or not node.block_ids else names[node.block_ids[0]]


def _request(request: Request, names: Mapping[int, int]) -> tuple[Any, ...]:
    return (
        request.status,
        request.num_computed_tokens,
        request.num_prompt_tokens,
        request.sampling,
        request.extra_keys,
        request.images,
        request.is_loading,
        request.is_prefilling,
        request.drafts,
        request.shared_prefix_boundary,
        tuple(request.token_ids),
        tuple([tuple([names[block_id] for block_id in table]) for table in request.block_tables]),
        tuple(request.num_registered_blocks),
        tuple(request.block_hashes),
    )


def _urgency(requests: Sequence[Request]) -> tuple[tuple[int, int], ...]:
    """Return priorities and order of arrival, if any request has a priority."""
    if not any(request.priority for request in requests):
        return ()
    arrivals = sorted(request.arrival for request in requests)
    return tuple((request.priority, arrivals.index(request.arrival)) for request in requests)


def _siblings(scheduler: Scheduler, request: Request, numbers: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(numbers[one.request_id] for one in scheduler.siblings.of(request) if one.request_id in numbers)


def _searches(scheduler: Scheduler, requests: Sequence[Request], numbers: Mapping[int, int]) -> object:
    """Return the state of each beam search. A beam that waits for the others of its search is in no queue."""
    if (beams := scheduler.beams) is None:
        return ()
    found = {search.beam_ids: search for one in requests if (search := beams.search_of(one)) is not None}
    return tuple(
        (
            tuple([numbers.get(beam_id) for beam_id in search.beam_ids]),
            tuple([(numbers.get(beam_id), score) for beam_id, score in search.scores.items()]),
            frozenset(map(numbers.get, search.likeliest)),
            search.ended,
        )
        for search in found.values()
    )


def _block(block: Block, name: int, memory: SlotMemory) -> tuple[Any, ...]:
    page = memory.page(block.block_id)
    content = None if page is None else (page.group, tuple(page.slots))
    return (name, block.ref_count, block.keys, bool(block.token_ids), _number(block.prefix), content)


def _number(prefix: Prefix | None) -> int:
    """Return a hash of the tokens and keys of a chain."""
    number = 0
    while prefix is not None:
        number = hash((number, prefix.token_ids))
        prefix = prefix.parent
    return number


def _external(scheduler: Scheduler, numbers: Mapping[int, int]) -> tuple[Any, ...]:
    external = scheduler.external
    if external.connector is None:
        return ()
    return (
        tuple(external.loading.values()),
        frozenset((numbers.get(i, i), is_there) for i, is_there in external.arrived.items()),
        frozenset(numbers[i] for i in external.failed_requests if i in numbers),
        frozen(vars(external.connector)),
    )
