"""A keyframe: a state as JSON. The type hints of Keyframe define which documents are valid."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Literal, NamedTuple, get_type_hints

from labengine.events import (
    BlockId,
    BlockIds,
    BlockOrNull,
    GroupKey,
    GroupNumber,
    GroupRow,
    Image,
    NodeId,
    Signed,
    TokenIds,
)
from labengine.record.files.sequence import SLACK
from labengine.record.files.shapes import PoolSize, shape_of
from labengine.record.fold import Fold
from labengine.record.fold_state import RequestFold
from labengine.record.snapshot import GroupState, NodeState
from labengine.record.tree_fold import TreeFold

Status = Literal["waiting", "running", "preempted", "finished"]


class Keyframe(NamedTuple):
    """A state's values. Fields with a default were added later: keyframes of earlier releases lack them."""

    step: int
    groups: tuple[GroupRow, ...]
    null_block: BlockOrNull
    requests: tuple[tuple[int, Status, TokenIds, int, int, BlockIds], ...]
    """(id, status, tokens, tokens of the prompt, computed tokens, tables) each."""
    ref_counts: tuple[Signed, ...]
    block_keys: tuple[tuple[BlockId, tuple[GroupKey, ...]], ...]
    block_tokens: tuple[tuple[BlockId, TokenIds], ...]
    free_queue: tuple[BlockId, ...]
    prefix_map: tuple[tuple[GroupNumber, bytes, tuple[BlockId, ...]], ...]
    priorities: tuple[tuple[int, Signed], ...] = ()
    """(request, priority) of requests with a priority other than 0."""
    pins: tuple[tuple[BlockId, int], ...] = ()
    holding: tuple[int, ...] = ()
    drafts: tuple[tuple[int, TokenIds], ...] = ()
    images: tuple[tuple[int, tuple[Image, ...]], ...] = ()
    rejected: tuple[tuple[int, int, int], ...] = ()
    """(request, start, end) of slots of rejected guesses."""
    states: tuple[tuple[BlockId, int, bool], ...] | None = None
    """(block, number of tokens, is spoiled) each."""
    beams: tuple[tuple[int, int], ...] = ()
    """(request, first request of its beam search)."""
    tree: tuple[tuple[NodeId, NodeId, tuple[BlockId, ...], Signed, tuple[int, ...]], ...] = ()
    """The nodes of the prefix tree, the oldest first, with the fields of a NodeState."""


_SHAPES = {name: shape_of(hint) for name, hint in get_type_hints(Keyframe, include_extras=True).items()}


def keyframe(state: Fold) -> dict[str, Any]:
    """Return a state, ready for `dumps`. Blocks without content are left out."""
    return {
        "step": state.step,
        "groups": [(g.kind, g.block_size, g.window) for g in state.groups],
        "null_block": state.null_block,
        "requests": [
            (i, r.status, r.token_ids, r.num_prompt_tokens, r.num_computed_tokens, r.block_tables)
            for i, r in state.requests.items()
        ],
        "priorities": [(i, r.priority) for i, r in state.requests.items() if r.priority],
        "ref_counts": state.ref_counts,
        "block_keys": [(block_id, keys) for block_id, keys in enumerate(state.block_keys) if keys],
        "block_tokens": [(block_id, tokens) for block_id, tokens in enumerate(state.block_tokens) if tokens],
        "free_queue": list(state.free_queue),
        "prefix_map": [(*key, ids) for key, ids in state.prefix_map.items()],
        "pins": list(state.pins.items()),
        "holding": sorted(state.holding),
        "drafts": [(i, r.drafts) for i, r in state.requests.items() if r.drafts],
        "images": [(i, r.images) for i, r in state.requests.items() if r.images],
        "rejected": [(i, *r.rejected) for i, r in state.requests.items() if r.rejected is not None],
        "states": [(block_id, num, block_id in state.spoiled) for block_id, num in state.states.items()],
        "beams": [(i, r.first_beam) for i, r in state.requests.items() if r.first_beam is not None],
        "tree": [(n.node_id, n.parent_id, n.block_ids, n.num_locks, n.locked_by) for n in state.tree.states()],
    }


def fold_of(document: Any) -> Fold:
    """Return the state of a checked keyframe of JSON."""
    return _fold_of(Keyframe(**{name: _read(name, document[name]) for name in Keyframe._fields if name in document}))


def checked_fold(document: Any) -> Fold:
    """Return the state of a keyframe of JSON. Raises ValueError for anything else, and for ids out of bounds."""
    try:
        _check(document)
        return fold_of(document)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"not a valid keyframe ({error})") from None


def _check(document: Any) -> None:
    pool = PoolSize(len(document["ref_counts"]), len(document["groups"]))
    for name, shape in _SHAPES.items():
        if name in document or name not in Keyframe._field_defaults:
            shape.check([document[name]], pool)
    queue, requests, null_block = document["free_queue"], document["requests"], document["null_block"]
    if len(set(queue)) < len(queue) or null_block in queue:
        raise ValueError("the free queue has a block twice, or the null block")
    if len({request[0] for request in requests}) < len(requests):
        raise ValueError("two requests have the same id")
    for request_id, _, tokens, num_prompt, num_computed, tables in requests:
        is_within = max(num_computed, *map(len, tables), 0) <= len(tokens) + SLACK
        has_blocks = null_block < 0 or all(-1 not in table for table in tables)
        if len(tables) != pool.num_groups or num_prompt > len(tokens) or not (is_within and has_blocks):
            raise ValueError(f"request {request_id} is inconsistent")


def _read(name: str, value: Any) -> Any:
    read = _SHAPES[name].read
    return value if read is None else read(value)


def _fold_of(saved: Keyframe) -> Fold:
    state, num_blocks = Fold(), len(saved.ref_counts)
    state.step, state.null_block, state.ref_counts = saved.step, saved.null_block, list(saved.ref_counts)
    state.groups = tuple(GroupState(*group) for group in saved.groups)
    for request_id, status, token_ids, num_prompt, num_computed, tables in saved.requests:
        lists = [list(table) for table in tables]
        state.requests[request_id] = RequestFold(status, list(token_ids), num_prompt, num_computed, lists)
    for request_id, priority in saved.priorities:
        state.requests[request_id].priority = priority
    for request_id, drafts in saved.drafts:
        state.requests[request_id].drafts = drafts
    for request_id, images in saved.images:
        state.requests[request_id].images = images
    for request_id, first_beam in saved.beams:
        state.requests[request_id].first_beam = first_beam
    state.block_keys, state.block_tokens = [()] * num_blocks, [()] * num_blocks
    for block_id, keys in saved.block_keys:
        state.block_keys[block_id] = keys
    for block_id, tokens in saved.block_tokens:
        state.block_tokens[block_id] = tokens
    state.free_queue = OrderedDict.fromkeys(saved.free_queue)
    state.prefix_map = {(group, block_hash): ids for group, block_hash, ids in saved.prefix_map}
    for request_id, start, end in saved.rejected:
        state.requests[request_id].rejected = start, end
    state.pins, state.holding = dict(saved.pins), set(saved.holding)
    state.tree = TreeFold.of([NodeState(*row) for row in saved.tree])
    if saved.states is None:
        state.assume_states()
    else:
        state.states = {block_id: num_tokens for block_id, num_tokens, _ in saved.states}
        state.spoiled = {block_id for block_id, _, is_spoiled in saved.states if is_spoiled}
    return state
