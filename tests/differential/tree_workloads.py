"""Random workloads for engines with a prefix tree: shared prefixes, tight pools, chunks, aborts, retractions.

A workload is a dictionary of JSON types. requests: [{uid, step, prompt, max_tokens, output}], where `step` is the
iteration of the engine's loop in which a request arrives, and `output` what it samples. aborts: [{uid, step}]. eos: -1
for none.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

Workload = dict[str, Any]

NUM_STEPS = 1000
"""Most iterations of a workload; none takes so many."""


def mini_sglang_workload(seed: int) -> Workload:
    """A workload for mini-sglang, which reserves the worst case: every request fits the pool alone."""
    rng = Random(seed)
    page_size, vocabulary = rng.choice([1, 1, 2, 4]), rng.choice([2, 3, 8])
    num_pages = rng.randint(6, 30) * (2 if page_size == 1 else 1)
    capacity = num_pages * page_size

    def most_tokens(prompt: list[int]) -> int:
        return max(1, min(10, capacity - len(prompt) - page_size))

    requests = _requests(rng, vocabulary, max(2, capacity - 2) - 1, most_tokens)
    return {
        "page_size": page_size,
        "num_pages": num_pages,
        "max_running_req": rng.choice([2, 4, 8]),
        "max_extend_tokens": rng.choice([4, 8, 16, 8192]),
        "eos": rng.choice([-1, 1]),
        "requests": requests,
        "aborts": _aborts(rng, requests),
    }


def sglang_workload(seed: int) -> Workload:
    """A workload for SGLang, which reserves a share of what may come; every other seed leaves next to nothing."""
    rng, is_tight = Random(seed), seed % 2 == 1
    page_size, vocabulary = rng.choice([1, 1, 2, 4, 8]), rng.choice([2, 3, 8])
    num_pages = rng.randint(8, 24) * (2 if page_size == 1 else 1)
    limit = (num_pages - 2) * page_size - 2

    def most_tokens(prompt: list[int]) -> int:
        wanted = num_pages * page_size // 3 if is_tight else 14
        return max(1, min(wanted, limit - len(prompt)))

    requests = _requests(rng, vocabulary, limit - 1, most_tokens, is_tight=is_tight)
    return {
        "page_size": page_size,
        "num_pages": num_pages,
        "max_running_req": 8 if is_tight else rng.choice([2, 4, 8]),
        "chunked_prefill_size": rng.choice([None, *(max(page_size, size) for size in (4, 8, 16))]),
        "new_token_ratio": 0.01 if is_tight else rng.choice([0.7, 0.1]),
        "retract_steps": rng.choice([20, 1]),
        "eos": -1 if is_tight else rng.choice([-1, 1]),
        "requests": requests,
        "aborts": _aborts(rng, requests),
    }


def _requests(
    rng: Random, vocabulary: int, longest: int, most_tokens: Callable[[list[int]], int], *, is_tight: bool = False
) -> list[dict[str, Any]]:
    """Requests, most of which continue an earlier one's text. is_tight: all at once, each as long as it can be."""
    requests: list[dict[str, Any]] = []
    for uid in range(rng.randint(4 if is_tight else 2, 9)):
        prompt = _prompt(rng, vocabulary, min(24, longest), requests)[:longest]
        max_tokens = most_tokens(prompt) if is_tight else rng.randint(1, most_tokens(prompt))
        requests.append(
            {
                "uid": uid,
                "step": rng.randint(0, 2 if is_tight else 8),
                "prompt": prompt,
                "max_tokens": max_tokens,
                "output": [rng.randint(1, vocabulary) for _ in range(max_tokens)],
                **({"ignore_eos": True} if rng.random() < 0.1 else {}),
            }
        )
    return requests


def _prompt(rng: Random, vocabulary: int, longest: int, requests: list[dict[str, Any]]) -> list[int]:
    if requests and rng.random() < 0.7:
        base = rng.choice(requests)
        text = base["prompt"] + base["output"]
        return text[: rng.randint(1, len(text))] + [rng.randint(1, vocabulary) for _ in range(rng.randint(0, 4))]
    return [rng.randint(1, vocabulary) for _ in range(rng.randint(1, longest))]


def _aborts(rng: Random, requests: list[dict[str, Any]]) -> list[dict[str, int]]:
    if rng.random() < 0.5:
        return []
    return [{"uid": r["uid"], "step": r["step"] + rng.randint(0, 6)} for r in requests if rng.random() < 0.3]


WORKLOADS: dict[str, Callable[[int], Workload]] = {
    "sglang": sglang_workload,
    "mini-sglang": mini_sglang_workload,
    "mini-sglang+142": mini_sglang_workload,
}
"""Per edition, the random workload of a seed."""
