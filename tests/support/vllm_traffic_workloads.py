"""Random traffics with known answers: full attention alone, beside windows, beside states, and beside both.

As in vllm_scheduler_workloads.py, a seed names a workload. Its keys are simulate's, and each request's `answer`. In
half of them all requests join at step 0, as those of a file of prompts without times do.
"""

from __future__ import annotations

from random import Random
from typing import Any

Row = dict[str, Any]


def traffic_workload(seed: int) -> Row:
    """Return a workload that vLLM can bring to its end."""
    rng = Random(f"traffic {seed}")
    size = rng.choice((4, 8, 16, 32))
    seqs = rng.choice((1, 2, 4, 8, 16))
    groups = _groups(rng, size, seed % 4)
    longest_block = max(group["block_size"] for group in groups)
    budgets = (size, longest_block + 1, 3 * longest_block, 8 * size + 3, 512)
    workload: Row = {
        "block_size": size,
        "hash_block_size": size,
        "groups": groups,
        "max_num_seqs": seqs,
        "max_num_batched_tokens": max(seqs, rng.choice(budgets)),
    }
    if len(groups) > 1 and rng.random() < 0.5:
        workload["retention_interval"] = rng.choice((0, 0, longest_block * rng.randint(1, 3)))
    if rng.random() < 0.2:
        workload["watermark"] = rng.choice((0.02, 0.1))
    if rng.random() < 0.2:
        workload["long_prefill_token_threshold"] = rng.choice((longest_block, 2 * longest_block + 1))
    requests = _requests(rng, size)
    needed = max(_num_blocks_needed(workload, request) for request in requests)
    slack = rng.choice((0, 1, needed // 2, needed, 3 * needed, 10 * needed))
    return workload | {"num_blocks": 1 + needed + slack, "requests": requests}


def _groups(rng: Random, size: int, kind: int) -> list[Row]:
    """kind: its bits are whether windows and states are there."""
    groups: list[Row] = [{"kind": "full", "block_size": size}]
    if kind & 1:
        windows = (size, 2 * size + 1, 5 * size)
        groups += [{"kind": "sliding_window", "block_size": size, "window": rng.choice(windows)}] * rng.randint(1, 2)
    if kind & 2:
        factor = 1 if kind & 1 else rng.choice((1, 1, 2, 4))
        groups += [{"kind": "state", "block_size": factor * size}] * rng.randint(1, 2)
    return groups


def _requests(rng: Random, size: int) -> list[Row]:
    stems = [_tokens(rng, rng.randint(size, 10 * size)) for _ in range(rng.randint(1, 3))]
    has_times, salt_chance = rng.random() < 0.5, rng.choice((0, 0, 0.1, 0.4))
    requests: list[Row] = []
    step = 0
    for _ in range(rng.randint(5, 30)):
        answer = _tokens(rng, rng.randint(1, 20))
        request: Row = {"step": step, "prompt": _prompt(rng, stems, requests, size), "answer": answer}
        request["max_tokens"] = len(answer)
        if rng.random() < salt_chance:
            request["salt"] = rng.choice(("a", "b"))
        requests.append(request)
        if has_times:
            step += rng.choice((0, 0, 1, 2, 9)) if rng.random() < 0.95 else rng.randint(50, 200)
    return requests


def _prompt(rng: Random, stems: list[list[int]], before: list[Row], size: int) -> list[int]:
    """Return a prompt again, the next turn of a chat, or a stem that continues differently."""
    chance = rng.random()
    if before and chance < 0.2:
        return list(rng.choice(before)["prompt"])
    if before and chance < 0.55:
        earlier = rng.choice(before[-8:])
        heard = len(earlier["answer"]) if rng.random() < 0.7 else rng.randint(0, len(earlier["answer"]))
        chat: list[int] = (earlier["prompt"] + earlier["answer"][:heard])[: 40 * size]
        return chat + _tokens(rng, rng.randint(1, 2 * size))
    stem = rng.choice(stems)
    kept = len(stem) if rng.random() < 0.5 else rng.randint(0, len(stem))
    return stem[:kept] + _tokens(rng, rng.randint(1, 3 * size))


def _num_blocks_needed(workload: Row, request: Row) -> int:
    """Return the blocks with which a request can always be finished alone; a hit inside a state takes a copy."""
    last = len(request["prompt"]) + request["max_tokens"] - 1
    needed = 0
    for group in workload["groups"]:
        size, window = group["block_size"], group.get("window")
        held = min(last, window - 1 + workload["max_num_batched_tokens"] + size) if window else last
        needed += 4 if group["kind"] == "state" else -(-held // size)
    return needed


def _tokens(rng: Random, num_tokens: int) -> list[int]:
    return [rng.randrange(50) for _ in range(num_tokens)]
