"""Random workloads for a lab that drives vLLM: those of vllm_mixed_workloads, as calls of a lab.

A seed names a workload. Requests sample by their seed, which a lab's simulated model and driver.py's use alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import vllm_mixed_workloads
from labengine.config import Drafter
from labengine.engine.workload import group_specs
from vllm_scheduler_workloads import unread_workload
from vllm_state_workloads import fine_state_workload

LIMITS = (
    *("num_blocks", "block_size", "max_num_seqs", "max_num_batched_tokens", "hash_block_size", "watermark"),
    *("long_prefill_token_threshold", "retention_interval", "max_model_len", "policy"),
)

Row = dict[str, Any]


@dataclass(frozen=True)
class RightAndWrong:
    """Guesses that depend on the text alone: most are what the simulated model samples after its newest token."""

    num_drafts: int
    drafter: Drafter = "lookup"

    def propose(self, token_ids: Sequence[int], num_tokens: int) -> tuple[int, ...]:
        """Return the guesses: all that are asked for, or, as a look-up does, often fewer."""
        rng = Random(f"{len(token_ids)} {token_ids[-1]}")
        length = rng.randint(0, num_tokens) if self.drafter == "lookup" else num_tokens
        return tuple((token_ids[-1] + 104729 * n) % 50021 + (rng.random() < 0.3) for n in range(1, length + 1))


@dataclass
class DrivenWorkload:
    """settings: keywords of Lab. calls: (name of a Lab's method, arguments); an id that no request has is skipped."""

    settings: Row
    calls: list[tuple[str, Row]] = field(default_factory=list)


def driven_workload(seed: int) -> DrivenWorkload:
    """Return one workload: each of seven kinds in turn. It ends with steps that end all requests."""
    rng, kinds = Random(f"driven {seed}"), vllm_mixed_workloads.KINDS
    kind = seed % (len(kinds) + 2)
    if kind < len(kinds):
        workload = vllm_mixed_workloads.mixed_workload(seed, kinds[kind])
    else:
        workload = (unread_workload, fine_state_workload)[kind - len(kinds)](seed)
    settings = {name: workload[name] for name in LIMITS if workload.get(name) is not None}
    settings["groups"] = group_specs(workload)
    if drafts := workload.get("speculation"):
        settings["speculation"] = RightAndWrong(drafts["num_drafts"], drafts["drafter"])
    return DrivenWorkload(settings, _calls(rng, workload))


def _calls(rng: Random, workload: Row) -> list[tuple[str, Row]]:
    by_step: dict[int, list[tuple[str, Row]]] = {}
    for number, request in enumerate(workload["requests"]):
        if "leader" not in request:
            by_step.setdefault(request["step"], []).append(("add", _added(rng, workload, number)))
    for clock, number, *_ in workload.get("aborts", ()):
        by_step.setdefault(clock, []).append(("abort", {"request_id": number}))
    if rng.random() < 0.3:
        by_step.setdefault(rng.randint(1, 40), []).append(("reset_prefix_cache", {}))
    calls: list[tuple[str, Row]] = []
    for clock in range(max(by_step) + 1):
        calls += [*by_step.get(clock, ()), ("step", {})]
    return calls


def _added(rng: Random, workload: Row, number: int) -> Row:
    request = workload["requests"][number]
    length, num_answers = len(request["prompt"]), sum(one.get("leader") == number for one in workload["requests"])
    call = {
        "token_ids": request["prompt"],
        "max_tokens": request["max_tokens"],
        "seed": number % workload["streams"],
        "priority": request.get("priority", 0),
        "cache_salt": request.get("salt"),
        "skip_reading_prefix_cache": request.get("skip_reading_prefix_cache", False),
    }
    if num_answers:
        call["n"] = 1 + num_answers
    if rng.random() < 0.1:
        name, path = rng.choice((("a", "/a"), ("a", "/b"), ("b", "/b")))
        call["extra_keys"] = {"lora": name, "lora_path": path, "lora_int_id": str(rng.randint(1, 2))}
    if length > 2 and rng.random() < 0.15:
        start = rng.randrange(length - 1)
        call["images"] = {start: (rng.choice("xy"), rng.randint(1, length - start))}
    return call
