"""Random workloads for vLLM's scheduler: a pool that holds the largest request, and hardly two of them to their end.

Everything comes from one random.Random, so a seed names a workload. The keys are simulate's, and two more: `streams`
and `alphabet` say how requests go on (next_token). What a set of them must meet is counted in vllm_encounters.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from vllm_layouts import Layout, random_layout

Request = dict[str, Any]


def next_token(workload: dict[str, Any]) -> Callable[[int, int], int]:
    """How a workload's requests go on; those of one stream alike, so that blocks completed in decode are equal too."""
    streams, alphabet = workload["streams"], workload["alphabet"]
    return lambda request_id, position: (request_id % streams * 7919 + position * 104729) % alphabet


def for_simulate(workload: dict[str, Any]) -> dict[str, Any]:
    """The workload in simulate's own keys."""
    return {key: value for key, value in workload.items() if key not in ("streams", "alphabet", "speculation")}


def scheduler_workload(seed: int) -> dict[str, Any]:
    """One workload that vLLM can bring to its end, and mostly not without preempting.

    Some are crowds of long prompts that a threshold cuts into chunks: each is let in by the room of the moment, and
    together they have none. The others grow too large as they answer.
    """
    rng = Random(f"scheduler {seed}")
    layout = random_layout(rng, rng.choice(("full", "hybrid")))
    unit = max(layout.step_size, 4)
    is_crowd = rng.random() < 0.4
    max_num_seqs = rng.choice((4, 8, 8)) if is_crowd else rng.choice((2, 3, 4, 8))
    budgets = (24, 32, 5 * unit) if is_crowd else (4, 8, 16, 24, 64, layout.step_size + 1)
    workload = {
        "num_blocks": 0,
        "block_size": layout.hash_block_size,
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": max(max_num_seqs, rng.choice(budgets)),
        "groups": [_group(size, window) for size, window in layout.groups],
        **_settings(rng, layout, threshold_chance=1.0 if is_crowd else 0.2),
        "streams": rng.choice((1, 2, 1000, 1000)),
        "alphabet": rng.choice((2, 3, 50021)),
    }
    requests = _requests(rng, workload, unit, is_crowd=is_crowd)
    needed = max(_num_blocks_needed(layout, workload["max_num_batched_tokens"], request) for request in requests)
    slack = rng.choice((0, 0, 0, 1, 2, needed // 4))
    return workload | {"num_blocks": 1 + needed + slack, "requests": requests}


def unread_workload(seed: int) -> dict[str, Any]:
    """A workload of the scheduler in which a third of the requests do not read the prefix cache."""
    rng = Random(f"unread {seed}")
    workload = scheduler_workload(seed)
    requests = [one | {"skip_reading_prefix_cache": rng.random() < 1 / 3} for one in workload["requests"]]
    return workload | {"requests": requests}


def speculating_workload(seed: int) -> dict[str, Any]:
    """One workload with drafts, many of them right: of a look-up, of a draft model or of EAGLE's head.

    Some requests reach max_model_len before max_tokens.
    """
    rng = Random(f"speculation {seed}")
    workload = scheduler_workload(rng.randrange(10**9))
    num_drafts, seqs = rng.randint(1, 5), workload["max_num_seqs"]
    drafter = rng.choice(("lookup", "draft_model", "eagle", "eagle"))
    workload["alphabet"] = rng.choice((1, 2, 3))
    workload["speculation"] = {"num_drafts": num_drafts, "alphabet": workload["alphabet"], "drafter": drafter}
    workload["max_num_batched_tokens"] = max(workload["max_num_batched_tokens"], seqs * (2 + num_drafts))
    if workload.get("long_prefill_token_threshold", 0) <= num_drafts:  # vLLM fails an assertion
        workload.pop("long_prefill_token_threshold", None)
    requests = workload["requests"]
    if rng.random() < 0.3:
        workload["max_model_len"] = max(len(one["prompt"]) for one in requests) + rng.randint(2, 12)
    longest = max(len(one["prompt"]) + one["max_tokens"] for one in requests) + 2 * num_drafts + 1
    groups = workload["groups"]
    needed = sum(-(-longest // group["block_size"]) for group in groups)
    workload["num_blocks"] = 1 + needed + rng.choice((0, 0, rng.randint(0, needed)))
    return workload


def _group(size: int, window: int | None) -> dict[str, Any]:
    group: dict[str, Any] = {"kind": "sliding_window" if window else "full", "block_size": size}
    return group | {"window": window} if window else group


def _settings(rng: Random, layout: Layout, threshold_chance: float) -> dict[str, Any]:
    settings: dict[str, Any] = {"hash_block_size": layout.hash_block_size}
    if layout.retention_interval is not None:
        settings["retention_interval"] = layout.retention_interval
    if rng.random() < 0.25:
        settings["watermark"] = rng.choice((0.01, 0.05, 0.1, 0.2, 0.3))
    if rng.random() < threshold_chance:
        settings["long_prefill_token_threshold"] = rng.choice((2, 5, 7, layout.step_size, 2 * layout.step_size + 1))
    return settings


def _num_blocks_needed(layout: Layout, budget: int, request: Request) -> int:
    """With so many a request can always be finished alone: a window holds itself and a step's tokens, unaligned."""
    last = len(request["prompt"]) + request["max_tokens"] - 1
    held = (min(last, window - 1 + budget + size) if window else last for size, window in layout.groups)
    return sum(-(-tokens // size) for tokens, (size, _) in zip(held, layout.groups, strict=True))


def _requests(rng: Random, workload: dict[str, Any], unit: int, *, is_crowd: bool) -> list[Request]:
    stems = [_tokens(rng, workload, rng.randint(1, 4 * unit)) for _ in range(rng.randint(1, 3))]
    requests: list[Request] = []
    step = 0
    for _ in range(rng.randint(5, 9)):
        prompt = _prompt(rng, workload, stems, requests, unit)
        if is_crowd and rng.random() < 0.6:
            prompt = prompt + _tokens(rng, workload, max(0, rng.randint(3, 6) * unit - len(prompt)))
        shortest, longest = (1, 2 * unit) if is_crowd else (2 * unit, 6 * unit)
        answers = (rng.randint(1, unit), rng.randint(shortest, longest), rng.randint(shortest, longest))
        request = {"step": step, "prompt": prompt, "max_tokens": rng.choice(answers)}
        if rng.random() < 0.12:
            request["salt"] = rng.choice(("a", "b"))
        requests.append(request)
        step += rng.choice((0, 0, 0, 0, 1, 2, 5)) if rng.random() < 0.95 else rng.randint(20, 60)
    return requests


def _prompt(
    rng: Random, workload: dict[str, Any], stems: Sequence[list[int]], before: Sequence[Request], unit: int
) -> list[int]:
    """A prompt again, the next turn of a conversation, or a stem that goes on otherwise."""
    chance = rng.random()
    if before and chance < 0.2:
        return list(rng.choice(before)["prompt"])
    if before and chance < 0.4:
        return _follow_up(rng, workload, before, unit)
    stem = rng.choice(stems)
    if chance < 0.5:
        return list(stem)
    return stem[: rng.randint(0, len(stem))] + _tokens(rng, workload, rng.randint(1, 2 * unit))


def _follow_up(rng: Random, workload: dict[str, Any], before: Sequence[Request], unit: int) -> list[int]:
    request_id = rng.randrange(len(before))
    prompt: list[int] = before[request_id]["prompt"]
    num_answered = rng.randint(0, before[request_id]["max_tokens"])
    token_at = next_token(workload)
    answer = [token_at(request_id, len(prompt) + n) for n in range(num_answered)]
    return (prompt + answer)[: 6 * unit] + _tokens(rng, workload, rng.randint(1, unit))


def _tokens(rng: Random, workload: dict[str, Any], num_tokens: int) -> list[int]:
    return [rng.randrange(min(workload["alphabet"], 50)) for _ in range(num_tokens)]
