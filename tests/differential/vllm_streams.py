"""Workloads for a tapped vLLM scheduler, and the recorded ones in tests/golden.

vllm-streams.jsonl.gz is of vLLM as it is, vllm-connector-streams.jsonl.gz with a connector, vllm-kinds-streams.jsonl.gz
with speculation, priorities or state groups, vllm-broken.jsonl.gz of the copies in vllm_upstream_broken;
vllm-late-streams.jsonl.gz has a keyframe before each step, from some step on.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from differential.vllm_golden import FOLDER
from vllm_priority_workloads import priority_workload
from vllm_scheduler_workloads import scheduler_workload, speculating_workload
from vllm_state_workloads import checkpoint_workload, speculating_state_workload, state_workload

PATH = FOLDER / "vllm-streams.jsonl.gz"
CONNECTOR_PATH = FOLDER / "vllm-connector-streams.jsonl.gz"
BROKEN_PATH = FOLDER / "vllm-broken.jsonl.gz"
KINDS_PATH = FOLDER / "vllm-kinds-streams.jsonl.gz"
CHECKPOINTS_PATH = FOLDER / "vllm-checkpoint-streams.jsonl.gz"
LATE_PATH = FOLDER / "vllm-late-streams.jsonl.gz"
RECORDED_LATE = ((0, 0), (1, 7), (11, 0), (12, 7), (16, 7))
"""(seed, steps before somebody listens) of each recorded workload with keyframes; those of priorities are beside it."""
RECORDED_LATE_PRIORITIES = ((1, 0), (12, 7))
RECORDED_CHECKPOINT_SEEDS = range(6)
RECORDED_LINK_SEEDS = (1, 3, 10, 17)
"""Seeds of `link_stream_workload`: such states are hit in three; in the last, hits end at every second link."""
RECORDED_SEEDS = range(16)
RECORDED_CONNECTOR_SEEDS = (1, 17, 65, 72, 89, 117, 127, 137, 348)
RECORDED_KINDS = {
    "speculation": (36, 9, 33, 42, 4),
    "priority": (0, 12, 1, 10),
    "states": (3, 9, 21, 8, 10),
    "states by priority": (0, 1, 3),
    "states and drafts": (3, 7, 9, 10),
}
"""Seeds per kind; one divisible by three is synchronous."""
BROKEN_RUNS = {
    "free order reversed": (21, 23),
    "touch leaves the queue": (21, 2),
    "unhashed to the tail": (21, 23),
    "late merge": (6, 5),
    "freed too early": (3, 2),
    "salt left out": (12, 4),
    "youngest first": (3, 1),
}
"""Seeds of the workloads recorded with each broken copy: a synchronous one, and an asynchronous one."""

Item = dict[str, Any]


def tapped_workload(seed: int) -> dict[str, Any]:
    """Return a workload; two of three run asynchronously, half of them with aborts, all with resets of the cache."""
    options: dict[str, Any] = {"async": seed % 3 > 0, "resets": True}
    if seed % 2:
        options["aborts"] = seed
    return scheduler_workload(seed) | options


def recorded_kinds() -> Iterator[tuple[str, int]]:
    """Yield (kind, seed) of each recorded workload of RECORDED_KINDS."""
    yield from ((kind, seed) for kind, seeds in RECORDED_KINDS.items() for seed in seeds)


def kinds_workload(kind: str, seed: int) -> dict[str, Any]:
    """Return a workload of one of RECORDED_KINDS, run as `tapped_workload` is."""
    makers = {
        "speculation": speculating_workload,
        "priority": priority_workload,
        "states and drafts": speculating_state_workload,
    }
    workload = makers.get(kind, state_workload)(seed)
    if kind == "states by priority":
        rng = Random(f"{kind} {seed}")
        requests = [request | {"priority": rng.randint(-1, 2)} for request in workload["requests"]]
        workload |= {"policy": "priority", "requests": requests}
    options: dict[str, Any] = {"async": seed % 3 > 0, "resets": True}
    if options["async"]:  # a state is freed a step later; else vLLM may preempt the only request again and again
        num_states = sum(group["kind"] == "state" for group in workload["groups"])
        options["num_blocks"] = workload["num_blocks"] + num_states
    return workload | options | ({"aborts": seed} if seed % 2 else {})


def checkpoint_stream_workload(seed: int) -> dict[str, Any]:
    """Return a workload of states with blocks of the attention's size, which chunks may leave inside them."""
    rng = Random(f"checkpoints {seed}")
    workload = state_workload(seed)
    size, alignment = rng.choice((2, 3, 4)), rng.choice((1, 1, 2, 16))
    state = {"kind": "state", "block_size": size, "checkpoint_alignment": alignment}
    groups = [{"kind": "full", "block_size": size}, *[state] * rng.choice((1, 1, 2))]
    if rng.random() < 0.3:
        groups.append({"kind": "sliding_window", "block_size": size, "window": rng.choice((1, size, 2 * size + 1))})
    longest = max(len(one["prompt"]) + one["max_tokens"] for one in workload["requests"])
    num_blocks = sum(4 if group["kind"] == "state" else -(-longest // size) + 1 for group in groups)
    workload |= {
        "block_size": size,
        "hash_block_size": size,
        "groups": groups,
        "max_num_batched_tokens": max(workload["max_num_batched_tokens"], rng.choice((2, 5, 9)) * size),
        "num_blocks": 1 + num_blocks + rng.choice((0, 0, num_blocks // 2)),
        "retention_interval": rng.choice((None, 0, 2 * size)),
    }
    return workload | {"async": seed % 3 > 0, "resets": True} | ({"aborts": seed} if seed % 2 else {})


def link_stream_workload(seed: int) -> dict[str, Any]:
    """Return a workload of states that chunks leave at the end of a link inside a block."""
    workload = checkpoint_workload(seed)
    longest = max(len(one["prompt"]) + one["max_tokens"] for one in workload["requests"])
    groups = workload["groups"]
    num_blocks = sum(6 if group["kind"] == "state" else 2 - (-longest // group["block_size"]) for group in groups)
    return workload | {"num_blocks": 1 + num_blocks, "async": False, "resets": True}


def recorded_checkpoints() -> list[dict[str, Any]]:
    """Return the recorded workloads with states inside chunks."""
    return [
        *map(checkpoint_stream_workload, RECORDED_CHECKPOINT_SEEDS),
        *map(link_stream_workload, RECORDED_LINK_SEEDS),
    ]


def connector_workload(seed: int) -> dict[str, Any]:
    """Return a workload with a connector: loads at once or late, some failing, delayed sends, pins, deferred frees."""
    rng, workload = Random(f"connector {seed}"), tapped_workload(seed)
    delay, size = rng.choice((0, 1, 2, 3)), workload["block_size"]
    tokens = {}
    for number, request in enumerate(workload["requests"]):
        if rng.random() < 0.6:
            num_tokens = rng.randint(1, len(request["prompt"]))
            tokens[str(number)] = num_tokens if rng.random() < 0.4 else num_tokens // size * size
    tier = {
        "delay": delay,
        "tokens": tokens,
        "again": {name: rng.randint(1, 3) for name in tokens if rng.random() < 0.2},
        "send": rng.choice((0, 1, 3)),
        "defer": workload["async"] and rng.random() < 0.6,
    }
    if rng.random() < 0.5 and (delay or not workload["async"]):
        tier["failing"] = seed
    if rng.random() < 0.5:
        tier["pinning"] = seed
    return workload | {"tier": tier}


def loads_complete_prompts(workload: dict[str, Any]) -> bool:
    """Return True if a late load may bring a whole prompt into a sliding window.

    vLLM 0.32 then computes the last token again, whose window reaches one token further back than the blocks that the
    load was given: it may read a null entry. Connectors end their loads before the last token, or at a block's end.
    """
    has_window = any("window" in group for group in workload.get("groups", ()))
    requests, tokens = workload["requests"], workload["tier"]["tokens"]
    is_complete = any(count == len(requests[int(name)]["prompt"]) for name, count in tokens.items())
    return has_window and is_complete and workload["tier"]["delay"] > 0


def broken_workloads() -> Iterator[dict[str, Any]]:
    """Yield the workloads that are recorded with broken copies of vLLM."""
    for name, seeds in BROKEN_RUNS.items():
        yield from (tapped_workload(seed) | {"broken": name} for seed in seeds)


def late_workloads() -> Iterator[dict[str, Any]]:
    """Yield the workloads that are recorded with a keyframe before each step: of vLLM, then of broken copies."""
    yield from (tapped_workload(seed) | {"late": late} for seed, late in RECORDED_LATE)
    yield from (kinds_workload("priority", seed) | {"late": late} for seed, late in RECORDED_LATE_PRIORITIES)
    yield from (tapped_workload(seeds[0]) | {"late": 0, "broken": name} for name, seeds in BROKEN_RUNS.items())


def begun_late(items: Sequence[Item], every: int = 1) -> Iterator[list[Item]]:
    """Yield a stream that begins at a keyframe, for each of them, or for each `every`-th."""
    keyframes = [place for place, item in enumerate(items) if "k" in item.get("message", {})]
    yield from ([items[0], *items[place:]] for place in keyframes[::every])


def write(header: dict[str, str], runs: Iterable[tuple[dict[str, Any], list[Item]]], path: Path = PATH) -> None:
    """Record; the same runs make the same bytes."""
    lines = [header, *({"workload": workload, "items": [*map(timeless, items)]} for workload, items in runs)]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def read(path: Path = PATH) -> Iterator[tuple[dict[str, Any], list[Item]]]:
    """Yield the recorded workloads, and what was seen while each ran."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        next(file)
        for line in file:
            run = json.loads(line)
            yield run["workload"], run["items"]


def lines_of(items: Iterable[Item]) -> list[bytes]:
    """Return the lines of the stream's file."""
    headers = ({**item["header"], "file": 1} for item in items if "header" in item)
    messages = (item["message"] for item in items if "message" in item)
    return [json.dumps(line).encode() for line in (*headers, *messages)]


def timeless(item: Item) -> Item:
    """Return the item with its number in place of the time."""
    return {"message": {**item["message"], "t": item["message"]["n"]}} if "message" in item else item
