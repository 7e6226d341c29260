"""Random workloads for vLLM's scheduler with state groups: alone, beside full attention, and beside windows.

As in vllm_scheduler_workloads.py, a seed names a workload. Prompts share stems that end anywhere, so that one group
hits more than another; budgets are smaller than a block in some.
"""

from __future__ import annotations

import math
from random import Random
from typing import Any

from vllm_scheduler_workloads import next_token

Request = dict[str, Any]
Group = dict[str, Any]


def mixed_state_workload(seed: int) -> dict[str, Any]:
    """One workload of states alone, beside drafts, or with hits inside their blocks: three of each in turn."""
    make = (state_workload, speculating_state_workload, fine_state_workload)[seed // 3 % 3]
    return make(seed // 9 * 3 + seed % 3)


def state_workload(seed: int) -> dict[str, Any]:
    """One workload that vLLM can bring to its end."""
    rng = Random(f"states {seed}")
    return _workload(rng, *_groups(rng))


def fine_state_workload(seed: int) -> dict[str, Any]:
    """One workload whose hits may end inside a block of states, some with drafts."""
    rng = Random(f"fine states {seed}")
    workload = _workload(rng, *_fine_groups(rng))
    workload["num_blocks"] += 2 * len(workload["groups"])  # each may need one for a copy
    return _with_drafts(rng, workload) if rng.random() < 0.4 else workload


def checkpoint_workload(seed: int) -> dict[str, Any]:
    """One workload whose chunks may leave a state inside them. Most have hits inside a block, some have drafts.

    Drafts are fewer than a link of the hash chain: else edition vllm refuses them. The pool's size is the caller's.
    """
    rng = Random(f"checkpoints {seed}")
    groups, link = _fine_groups(rng) if rng.random() < 0.7 else _groups(rng)
    size = max(group["block_size"] for group in groups if group["kind"] == "state")
    alignment = rng.choice((1, 1, 1, 2, link, size))
    groups = [g | {"checkpoint_alignment": alignment} if g["kind"] == "state" else g for g in groups]
    workload = _workload(rng, groups, link)
    if rng.random() < 0.5:  # chunks of several blocks
        workload["max_num_batched_tokens"] += 4 * size
    return _with_drafts(rng, workload, most=link - 1) if link > 1 and rng.random() < 0.4 else workload


def _workload(rng: Random, groups: list[Group], link: int) -> dict[str, Any]:
    step_size = math.lcm(*(group["block_size"] for group in groups))
    unit = max(group["block_size"] for group in groups)
    max_num_seqs = rng.choice((1, 2, 3, 4, 6))
    budget = rng.choice((3, unit - 1, unit, unit + 2, 2 * unit, 3 * unit + 1, 40))
    workload: dict[str, Any] = {
        "num_blocks": 0,
        "block_size": link,
        "hash_block_size": link,
        "groups": groups,
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": max(max_num_seqs, budget, 1),
        "streams": rng.choice((1, 2, 1000, 1000)),
        "alphabet": rng.choice((2, 3, 50021)),
    }
    interval = rng.choice((None, None, 0, 0, step_size * rng.randint(1, 4)))
    if interval is not None:
        workload["retention_interval"] = interval
    if rng.random() < 0.2:
        workload["watermark"] = rng.choice((0.05, 0.1, 0.3))
    if rng.random() < 0.25:
        workload["long_prefill_token_threshold"] = rng.choice((2, 5, unit, unit + 1, 2 * unit + 1))
    requests = _requests(rng, workload, unit)
    needed = max(_num_blocks_needed(workload, request) for request in requests)
    slack = rng.choice((0, 0, 1, 2, needed // 2, needed, 3 * needed))
    return workload | {"num_blocks": 1 + needed + slack, "requests": requests}


def speculating_state_workload(seed: int) -> dict[str, Any]:
    """One workload with states and drafts, many of them right: of a look-up, of a draft model or of EAGLE's head."""
    rng = Random(f"states and drafts {seed}")
    return _with_drafts(rng, state_workload(rng.randrange(10**9)))


def _with_drafts(rng: Random, workload: dict[str, Any], most: int = 4) -> dict[str, Any]:
    num_drafts, alphabet = rng.randint(1, most), rng.choice((1, 2, 3))
    drafter = rng.choice(("lookup", "draft_model", "eagle"))
    workload |= {"alphabet": alphabet, "speculation": {"num_drafts": num_drafts, "alphabet": alphabet}}
    workload["speculation"]["drafter"] = drafter
    budget, seqs = workload["max_num_batched_tokens"], workload["max_num_seqs"]
    workload["max_num_batched_tokens"] = max(budget, seqs * (2 + num_drafts))
    if workload["max_num_batched_tokens"] in [group["block_size"] for group in workload["groups"]]:
        workload["max_num_batched_tokens"] += 1  # a draft model takes one of them: vLLM would never compute a block
    if workload.get("long_prefill_token_threshold", 0) <= num_drafts:  # vLLM fails an assertion
        workload.pop("long_prefill_token_threshold", None)
    for request in workload["requests"]:
        request["prompt"] = [token_id % alphabet for token_id in request["prompt"]]
    longest = max(len(one["prompt"]) + one["max_tokens"] for one in workload["requests"]) + 2 * num_drafts + 1
    needed = 0
    for group in workload["groups"]:
        held = -(-longest // group["block_size"])
        scratch = 1 - (-(1 + num_drafts) // group["block_size"]) + num_drafts
        needed += min(held, 2 + num_drafts) + scratch if group["kind"] == "state" else held
    needed += 2 * len(workload["groups"])
    workload["num_blocks"] = 1 + needed + rng.choice((0, 0, 1, rng.randint(0, needed)))
    return workload


def _groups(rng: Random) -> tuple[list[Group], int]:
    """Groups, and the size of a hashed block. No layout has hits inside a block, which the edition lacks."""
    size = rng.choice((1, 2, 3, 4, 4, 4))
    states: list[Group] = [{"kind": "state", "block_size": size}] * rng.choice((1, 1, 1, 2))
    window = {"kind": "sliding_window", "block_size": size, "window": rng.choice((1, size, 2 * size + 1, 5 * size))}
    kind = rng.random()
    if kind < 0.1:
        return states[:1], size
    others: list[Group] = [{"kind": "full", "block_size": size}]
    if kind < 0.35:
        others.append(window)
    elif kind < 0.45:
        others = [{"kind": "full", "block_size": size * rng.choice((2, 3))}]
    elif kind < 0.55:  # a window of larger blocks turns hits inside a block off
        states = [group | {"block_size": 2 * size} for group in states]
        others.append(window | {"block_size": 2 * size})
    elif kind < 0.6:
        others = [window]
    groups = [*others, *states]
    if rng.random() < 0.3:
        rng.shuffle(groups)
    return groups, size


def _fine_groups(rng: Random) -> tuple[list[Group], int]:
    """Groups of which states, and perhaps full attention, have blocks of several links."""
    link = rng.choice((1, 2, 2, 4))
    states: list[Group] = [{"kind": "state", "block_size": link * rng.choice((2, 3, 4))}] * rng.choice((1, 1, 2))
    groups: list[Group] = [{"kind": "full", "block_size": link * rng.choice((1, 1, 2, 4))}, *states]
    if rng.random() < 0.2:
        window = rng.choice((1, link, 2 * link + 1, 5 * link))
        groups.append({"kind": "sliding_window", "block_size": link, "window": window})
    if rng.random() < 0.1:
        groups[0] = {"kind": "sliding_window", "block_size": link, "window": 3 * link}
    if rng.random() < 0.2:
        groups.append({"kind": "full", "block_size": link * rng.choice((1, 2))})
    if rng.random() < 0.3:
        rng.shuffle(groups)
    return groups, link


def _num_blocks_needed(workload: dict[str, Any], request: Request) -> int:
    """With so many a request can always be finished alone."""
    last = len(request["prompt"]) + request["max_tokens"] - 1
    needed = 0
    for group in workload["groups"]:
        size, window = group["block_size"], group.get("window")
        held = min(last, window - 1 + workload["max_num_batched_tokens"] + size) if window else last
        needed += 2 if group["kind"] == "state" else -(-held // size)
    return needed


def _requests(rng: Random, workload: dict[str, Any], unit: int) -> list[Request]:
    stems = [_tokens(rng, workload, rng.randint(unit, 6 * unit)) for _ in range(rng.randint(1, 2))]
    requests: list[Request] = []
    step = 0
    for _ in range(rng.randint(3, 9)):
        prompt = _prompt(rng, workload, stems, requests, unit)
        request: Request = {"step": step, "prompt": prompt, "max_tokens": rng.randint(1, 4 * unit)}
        if rng.random() < 0.08:
            request["salt"] = rng.choice(("a", "b"))
        requests.append(request)
        step += rng.choice((0, 0, 0, 1, 2, 5, 12))
    return requests


def _prompt(
    rng: Random, workload: dict[str, Any], stems: list[list[int]], before: list[Request], unit: int
) -> list[int]:
    """A prompt again, the next turn of a conversation, or a stem that goes on otherwise."""
    chance = rng.random()
    if before and chance < 0.25:
        return list(rng.choice(before)["prompt"])
    if before and chance < 0.45:
        request_id = rng.randrange(len(before))
        prompt: list[int] = before[request_id]["prompt"]
        token_at = next_token(workload)
        num_answered = rng.randint(0, before[request_id]["max_tokens"])
        answer = [token_at(request_id, len(prompt) + n) for n in range(num_answered)]
        return prompt + answer + _tokens(rng, workload, rng.randint(1, unit))
    stem = rng.choice(stems)
    return stem[: rng.randint(0, len(stem))] + _tokens(rng, workload, rng.randint(1, 2 * unit))


def _tokens(rng: Random, workload: dict[str, Any], num_tokens: int) -> list[int]:
    return [rng.randrange(min(workload["alphabet"], 50)) for _ in range(num_tokens)]
