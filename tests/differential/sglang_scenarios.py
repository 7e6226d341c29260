"""Scenarios about SGLang, run on SGLang 0.5.23's own scheduler and radix tree; tree_process.py says what it needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from differential.tree_process import upstream_of

VERSION = "0.5.23"
PROMPTS: dict[str, tuple[str, int, Sequence[Sequence[int]]]] = {
    "sglang-24892": (
        "0.5.23",
        9,
        (range(1, 13), range(21, 29), [*range(1, 9), 51], range(41, 57), [*range(21, 29), 61]),
    ),
    "sglang-32016": ("shortfall", 9, (range(1, 9), range(21, 29), range(41, 49), range(61, 77), [*range(41, 49), 81])),
    "sglang-34958": ("0.5.23", 5, (range(1, 9), range(21, 33), [*range(1, 9), 61])),
}
"""Per scenario: the column that does what upstream does, the pages, and the prompts, which run one after the other."""


def rows_of(folder: str) -> Iterator[tuple[str, dict[str, dict[str, int]]]]:
    """Yield scenarios and their rows. folder: the unpacked wheel."""
    with upstream_of("sglang", folder) as upstream:
        for id, (column, num_pages, prompts) in PROMPTS.items():
            steps = upstream.run(_workload(num_pages, prompts))
            scheduled = [one for step in steps for one in step["scheduled"]]
            found = next(start for uid, start, _ in scheduled if uid == len(prompts) - 1)
            computed = sum(num_tokens for _, _, num_tokens in scheduled)
            yield id, {column: {"tokens found": found, "tokens computed": computed}}


def _workload(num_pages: int, prompts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Two iterations per request: it ends in the first, and the second is idle."""
    return {
        "page_size": 4,
        "num_pages": num_pages,
        "max_running_req": 8,
        "chunked_prefill_size": None,
        "new_token_ratio": 0.7,
        "retract_steps": 20,
        "eos": -1,
        "aborts": [],
        "requests": [
            {"uid": uid, "step": 2 * uid, "prompt": [*prompt], "max_tokens": 1, "output": [7]}
            for uid, prompt in enumerate(prompts)
        ],
    }
