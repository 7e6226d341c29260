"""Counts what workloads of vllm_mixed_workloads run into, from their rows alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from differential.vllm_labels import group_label, prefix_label

Row = Mapping[str, Any]

ALWAYS = ("preemption", "hit", "step in flight")
WITH_DRAFTS = (
    *("drafts", "guess accepted", "guess rejected", "fewer drafts than asked for", "padded admission"),
    *("marked groups", "several modules", "end at max_model_len"),
)
ENCOUNTERS: dict[str, tuple[str, ...]] = {
    "forks": (*ALWAYS, "answers to one prompt", "answer that hits its leader's prompt"),
    "speculation": (*ALWAYS, *WITH_DRAFTS, "output of a preempted request"),
    "priority": (*ALWAYS, "overtaken", "victim that does not run last"),
    "checkpoints": (*ALWAYS, "state inside a chunk", "hit that ends at one", "drafts", "overtaken", "abort"),
    "mixed": (
        *(*ALWAYS, *WITH_DRAFTS, "answers to one prompt", "overtaken"),
        *("abort", "abort of a step in flight", "external tokens", "external tokens and drafts"),
    ),
}
"""What the workloads of each kind must meet."""


def met_by_mixed(workload: Row, rows: Sequence[Row]) -> set[str]:
    """Return what a workload met."""
    requests, drafts = workload["requests"], workload.get("speculation", {})
    happened = {
        "answers to one prompt": any("leader" in request for request in requests),
        "drafts": bool(drafts),
        "marked groups": any(group.get("eagle") for group in workload["groups"]),
        "several modules": drafts.get("drafter") == "mtp" and drafts["num_drafts"] > 1,
        "external tokens": bool(workload.get("tier")),
        "external tokens and drafts": bool(workload.get("tier") and drafts),
    }
    met = {name for name, did in happened.items() if did}
    empty: Row = {"requests": {}, "running": []}
    for before, row in pairwise([empty, *rows]):
        met |= _met_by_row(workload, before, row)
    if any("checkpoint_alignment" in group for group in workload["groups"]):
        met |= _met_inside_chunks(workload, rows)
    return met


def _met_inside_chunks(workload: Row, rows: Sequence[Row]) -> set[str]:
    """Return whether a chunk left a state inside it that was cached, and whether a request hit one."""
    found: set[str] = set()
    labels: set[str] = set()
    groups = [index for index, group in enumerate(workload["groups"]) if "checkpoint_alignment" in group]
    empty: Row = {"requests": {}, "cached": {}}
    for before, row in pairwise([empty, *rows]):
        found |= {"hit that ends at one" for one in row["hits"] if labels.intersection(_labels_of_hit(workload, *one))}
        label_of = {block_id: label for label, ids in row["cached"].items() for block_id in ids}
        for number, num_tokens, _ in row["scheduled"]:
            state, old = row["requests"][str(number)], before["requests"].get(str(number))
            for index in groups:
                size = workload["groups"][index]["block_size"]
                entry = -(-state[2] // size) - 2
                table = state[3][index] if state[3] else []
                known = old[3][index] if old and old[3] else []
                is_new = num_tokens > 1 and 0 <= entry < len(table) and table[entry] and table[entry] not in known
                if is_new and label_of.get(table[entry], "").startswith(f"g{index}:"):
                    labels.add(label_of[table[entry]])
    return found | ({"state inside a chunk"} if labels else set())


def _labels_of_hit(workload: Row, number: int, num_tokens: int) -> set[str]:
    request = workload["requests"][number]
    if not 0 < num_tokens <= len(request["prompt"]):
        return set()
    prefix = prefix_label(request["prompt"][:num_tokens], request.get("salt"))
    return {group_label(index, prefix) for index in range(len(workload["groups"]))}


def _met_by_row(workload: Row, before: Row, row: Row) -> set[str]:
    num_drafts = workload.get("speculation", {}).get("num_drafts", 0)
    requests, preempted = workload["requests"], row["preempted"]
    ahead = [state[5] for state in row["requests"].values()]
    happened = {
        "preemption": bool(preempted),
        "victim that does not run last": any(one != before["running"][-1] for one in preempted[:1]),
        "hit": any(num_tokens for _, num_tokens in row["hits"]),
        "answer that hits its leader's prompt": any(n and "leader" in requests[i] for i, n in row["hits"]),
        "overtaken": any(i > min(row["waiting"], default=i) for i in set(row["running"]) - set(before["running"])),
        "step in flight": any(num_tokens for num_tokens, *_ in ahead),
        "output of a preempted request": any(num_stale for *_, num_stale in ahead),
        "fewer drafts than asked for": any(0 < n < num_drafts for _, _, n in row["scheduled"]),
        "padded admission": any(n and i not in before["running"] for i, _, n in row["scheduled"]),
        "end at max_model_len": any(_is_cut(workload, row["requests"][str(i)]) for i in row["finished"]),
    }
    changed = [
        (int(name), before["requests"][name], state)
        for name, state in row["requests"].items()
        if name in before["requests"]
    ]
    aborted = [old for i, old, new in changed if old[0] != "finished" == new[0] and i not in row["finished"]]
    happened |= {
        "abort": bool(aborted),
        "abort of a step in flight": any(old[5][0] for old in aborted),
        "guess accepted": any(new[1] > old[1] + 1 for _, old, new in changed),
        "guess rejected": any(new[1] == old[1] + 1 and old[4] for _, old, new in changed),
    }
    return {name for name, did in happened.items() if did}


def _is_cut(workload: Row, state: Sequence[Any]) -> bool:
    return bool(state[1] == workload.get("max_model_len"))
