"""Counts what workloads run into, from their rows alone, so that a set of workloads can prove what it tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

Row = dict[str, Any]

NULL = 0

OP_ENCOUNTERS = (
    "hit",
    "hit on a live block",
    "hit on a free block",
    "hit and external tokens",
    "failed allocation",
    "duplicates in the map",
    "reset refused",
    "reset",
    "evicted while in use",
    "back after preemption with a hit",
)
"""What workloads of any kind must meet."""

HYBRID_OP_ENCOUNTERS = (
    *OP_ENCOUNTERS,
    "two-phase window",
    "shared prefix boundary",
    "window freed a block",
    "null hit",
)
"""And hybrid ones too."""

STEP_ENCOUNTERS = (
    "preemption",
    "several preemptions in a step",
    "self-preemption",
    "hit on a live block",
    "hit on a free block",
    "hit after preemption",
    "chunked prefill",
    "duplicates in the map",
    "window freed a block in prefill",
    "watermark",
    "long prefill threshold",
)
"""What the scheduler's workloads must meet."""


def met_by_ops(workload: Row, rows: Sequence[Row]) -> set[str]:
    """What a workload of single operations met."""
    before: Row = {"tables": {}, "ref_cnt": [0] * workload["num_blocks"], "cached": {}, "free_queue": []}
    met: set[str] = set()
    preempted: set[str] = set()
    for op, row in zip(workload["ops"], rows, strict=True):
        met |= _met_by_op(workload, op, before, row)
        if op["op"] == "preempt" and any(before["tables"][op["req"]]):
            preempted.add(op["req"])
        if row.get("ok") and row.get("hit") and row["req"] in preempted:
            met.add("back after preemption with a hit")
        before = row["state"]
    return met


def _met_by_op(workload: Row, op: Row, before: Row, row: Row) -> set[str]:
    state = row["state"]
    happened = {
        "reset": op["op"] == "reset" and row["ok"],
        "reset refused": op["op"] == "reset" and not row["ok"],
        "evicted while in use": op["op"] == "evict"
        and any(before["ref_cnt"][i] and _is_cached(before, i) for i in op["blocks"]),
        "shared prefix boundary": bool(row.get("shared_prefix_boundary")),
        "duplicates in the map": any(len(ids) > 1 for ids in state["cached"].values()),
    }
    if op["op"] == "allocate":
        happened |= _by_allocation(workload, before, row)
    return {name for name, did in happened.items() if did}


def _by_allocation(workload: Row, before: Row, row: Row) -> dict[str, bool]:
    after, name = row["state"], row["req"]
    if not row["ok"]:
        return {"failed allocation": "new_blocks" in row}
    hits = [
        table[: row["hit"] // size] for table, size in zip(after["tables"][name], group_sizes(workload), strict=True)
    ]
    old = before["tables"][name]
    return {
        "hit": row["hit"] > 0,
        "hit on a live block": any(i and before["ref_cnt"][i] for ids in hits for i in ids),
        "hit on a free block": any(i in before["free_queue"] for ids in hits for i in ids),
        "null hit": any(i == NULL for ids in hits for i in ids),
        "hit and external tokens": bool(row["hit"] and row["external"]),
        "two-phase window": bool(row["external"]) and bool(doubled_if_interleaved(workload, before, row)),
        "window freed a block": _became_null(old, after["tables"][name]),
    }


def doubled_if_interleaved(workload: Row, before: Row, row: Row) -> set[int]:
    """Blocks that would be in two groups' tables, had each group taken its external blocks before the next one's hits.

    vLLM issue 43884, on integers: a group's hits leave the queue, its external blocks come from the queue's head.
    """
    queue = list(before["free_queue"])
    taken: set[int] = set()
    doubled: set[int] = set()
    for table, size in zip(row["state"]["tables"][row["req"]], group_sizes(workload), strict=True):
        num_hit, num_computed = row["hit"] // size, (row["hit"] + row["external"]) // size
        hits = {i for i in table[:num_hit] if i != NULL}
        doubled |= hits & taken
        queue = [i for i in queue if i not in hits]
        num_external = sum(i != NULL for i in table[num_hit:num_computed])
        taken |= set(queue[:num_external])
        del queue[:num_external]
    return doubled


def group_sizes(workload: Row) -> list[int]:
    """The block size of each group."""
    return [group.get("block_size", workload["block_size"]) for group in workload["groups"]]


def _is_cached(state: Row, block_id: int) -> bool:
    return any(block_id in ids for ids in state["cached"].values())


def _became_null(old: Sequence[list[int]], new: Sequence[list[int]]) -> bool:
    pairs = (pair for tables in zip(old, new, strict=False) for pair in zip(*tables, strict=False))
    return any(was != NULL and now == NULL for was, now in pairs)


def met_by_steps(workload: Row, rows: Sequence[Row]) -> set[str]:
    """What a workload of the scheduler met; the first step counts from an empty pool."""
    met = {"watermark"} if workload.get("watermark") else set()
    met |= {"long prefill threshold"} if workload.get("long_prefill_token_threshold") else set()
    empty: Row = {"requests": {}, "free_queue": list(range(1, workload["num_blocks"]))}
    for before, row in pairwise([empty, *rows]):
        met |= _met_by_step(workload, before, row)
    return met


def _met_by_step(workload: Row, before: Row, row: Row) -> set[str]:
    preempted = row["preempted"]
    happened = {
        "preemption": bool(preempted),
        "several preemptions in a step": len(preempted) > 1,
        "self-preemption": bool(preempted) and len(workload["groups"]) == 1 and not _was_room_needed(before, row),
        "duplicates in the map": any(len(ids) > 1 for ids in row["cached"].values()),
    }
    met = {name for name, did in happened.items() if did}
    for request_id, num_tokens in row["scheduled"]:
        met |= _met_by_request(workload, before, row, request_id, num_tokens)
    return met


def _was_room_needed(before: Row, row: Row) -> bool:
    """True if some request got blocks that the queue did not have; else the preempted requests asked for themselves."""
    running = [
        str(request_id) for request_id, _ in row["scheduled"] if str(request_id) not in map(str, row["finished"])
    ]
    grown = sum(len(row["requests"][r][3][0]) - len(before["requests"][r][3][0]) for r in running)
    return grown > len(before["free_queue"])


def _met_by_request(workload: Row, before: Row, row: Row, request_id: int, num_tokens: int) -> set[str]:
    status, all_tokens, num_computed, tables = row["requests"][str(request_id)]
    if status != "running":
        return set()
    num_prompt_tokens = len(workload["requests"][request_id]["prompt"])
    old = before["requests"].get(str(request_id), ["waiting", num_prompt_tokens, 0, []])
    happened = {"chunked prefill": all_tokens == old[1]}
    happened["window freed a block in prefill"] = all_tokens == old[1] and _became_null(old[3], tables)
    hit = num_computed - num_tokens if old[0] != "running" else 0
    if hit > 0:
        hits = {i for table, size in zip(tables, group_sizes(workload), strict=True) for i in table[: hit // size] if i}
        free = set(before["free_queue"])
        happened |= {
            "hit on a free block": bool(hits & free),
            "hit on a live block": bool(hits - free),
            "hit after preemption": old[0] == "preempted",
        }
    return {name for name, did in happened.items() if did}


def workloads_meeting(encounters: Iterable[set[str]]) -> Counter[str]:
    """How many workloads met each thing at least once."""
    return Counter(name for met in encounters for name in met)
