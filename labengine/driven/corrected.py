"""The state of a fold in the words of driver.py, and a fold with an engine's state."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

from labengine.driven.inside.symptoms import shared_blocks, wrong_counts, wrong_tree
from labengine.record.fold import Fold
from labengine.record.fold_state import FINISHED
from labengine.record.snapshot import NodeState
from labengine.record.tree_fold import TreeFold


def told_state(fold: Fold) -> dict[str, Any]:
    """Return what a driven engine's state would be: no engine without a tap has a word for preempted requests."""
    cached = {block_id for blocks in fold.prefix_map.values() for block_id in blocks}
    return {
        "requests": {
            str(number): ["waiting" if one.status == "preempted" else one.status, [list(t) for t in one.block_tables]]
            for number, one in fold.requests.items()
            if one.status != FINISHED
        },
        "ref_counts": list(fold.ref_counts),
        "free_queue": list(fold.free_queue),
        "cached": sorted(cached),
        "tree": [[one.node_id, one.parent_id, one.num_locks, list(one.block_ids)] for one in fold.tree.states()],
        "holds": {str(number): node for number, node in fold.tree.holds.items()},
    }


def contradictions(fold: Fold, state: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each part of an engine's state that differs from the events."""
    told = told_state(fold)
    differing = [part for part in told if part in state and state[part] != told[part]]
    return [f"{part} is {state[part]} in the engine, but {told[part]} by the events" for part in differing]


def own_contradictions(state: Mapping[str, Any], num_blocks: int) -> Iterator[str]:
    """Yield a sentence for each part of an engine's state that contradicts another part."""
    yield from shared_blocks(state)
    yield from wrong_counts(state, num_blocks)
    yield from wrong_tree(state)


def corrected(fold: Fold, state: Mapping[str, Any]) -> Fold:
    """Return a fold with an engine's state, whatever it is. What no state tells stays as the events said."""
    other, num_blocks = fold.copy(), len(fold.ref_counts)

    def of_pool(block_ids: Any) -> list[int]:
        return [one for one in block_ids if type(one) is int and 0 <= one < num_blocks]

    for number, one in [*other.requests.items()]:
        if one.status != FINISHED and str(number) not in state["requests"]:
            other.requests[number] = one = one.copy()
            one.clear(FINISHED)
    for name, (status, tables) in state["requests"].items():
        request = other.requests[int(name)] = other.requests[int(name)].copy()
        request.status, request.block_tables = status, [of_pool(table) for table in tables]
    other.free_queue = OrderedDict.fromkeys(of_pool(state["free_queue"]))
    if "ref_counts" in state:
        other.ref_counts = list(state["ref_counts"])
    if "cached" in state:
        _keep_cached(other, set(of_pool(state["cached"])))
    if "tree" in state:
        other.tree = _tree(state)
        other.pins = dict.fromkeys(of_pool(one for *_, blocks in state["tree"] for one in blocks), 1)
        _count(other)
    return other


def _keep_cached(fold: Fold, cached: set[int]) -> None:
    """Forget content that is no longer cached, and give blocks with unknown content a key of their own."""
    for key, blocks in [*fold.prefix_map.items()]:
        fold.prefix_map[key] = tuple(one for one in blocks if one in cached)
        if not fold.prefix_map[key]:
            del fold.prefix_map[key]
    known = {one for blocks in fold.prefix_map.values() for one in blocks}
    for block_id in cached - known:
        key = 0, b"unknown content of %d" % block_id
        fold.block_keys[block_id], fold.prefix_map[key] = (key,), (block_id,)


def _tree(state: Mapping[str, Any]) -> TreeFold:
    holds = {int(name): node for name, node in state["holds"].items()}
    nodes = [
        NodeState(number, parent, tuple(blocks), locks, tuple(one for one, node in holds.items() if node == number))
        for number, parent, locks, blocks in state["tree"]
    ]
    return TreeFold.of(nodes)


def _count(fold: Fold) -> None:
    """Count references: an engine with a tree tells none."""
    fold.ref_counts = [0] * len(fold.ref_counts)
    held = [one for request in fold.requests.values() for table in request.block_tables for one in table]
    for block_id in (*held, *fold.pins):
        fold.ref_counts[block_id] += block_id not in fold.free_queue
