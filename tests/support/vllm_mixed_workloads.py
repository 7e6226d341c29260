"""Random workloads of vLLM's scheduler that mix what the others have alone: answers to one prompt, drafts, priorities,
states, states inside a chunk, aborts, an external tier, requests that do not read the cache, and steps in flight.

A seed and a kind name a workload. The keys are those of vllm_scheduler_workloads, and `async`, `aborts` and a request's
`leader` (differential.vllm_upstream_mixed).
"""

from __future__ import annotations

from random import Random
from typing import Any

from vllm_scheduler_workloads import scheduler_workload
from vllm_state_workloads import checkpoint_workload, state_workload

KINDS = ("forks", "speculation", "priority", "checkpoints", "mixed")

Row = dict[str, Any]


def mixed_workload(seed: int, kind: str) -> Row:
    """Return one workload; of kind "mixed" each feature is in about half of them."""
    rng = Random(f"{kind} {seed}")
    is_mixed = kind == "mixed"
    make = state_workload if is_mixed and rng.random() < 0.3 else scheduler_workload
    if kind == "checkpoints":
        make = checkpoint_workload
    workload = make(rng.randrange(10**9))
    workload["requests"] = [dict(request) for request in workload["requests"]]
    if kind == "forks" or (is_mixed and rng.random() < 0.5):
        workload["requests"] = workload["requests"][:4]
        workload["requests"] = _with_answers(rng, workload["requests"])
    if kind == "speculation" or (is_mixed and rng.random() < 0.6):
        _add_drafts(rng, workload)
    if kind == "priority" or (kind in ("checkpoints", "mixed") and rng.random() < 0.5):
        _add_priorities(rng, workload)
    if rng.random() < 0.4 and workload.get("speculation", {}).get("drafter") != "lookup":
        workload["async"] = True
    if kind in ("checkpoints", "mixed") and rng.random() < 0.4:
        _add_aborts(rng, workload)
    if is_mixed and not workload.get("async") and rng.random() < 0.4:
        _add_tier(rng, workload)
    if is_mixed and rng.random() < 0.2:
        workload["requests"] = [one | {"skip_reading_prefix_cache": rng.random() < 0.3} for one in workload["requests"]]
    return workload | {"num_blocks": 1 + _num_blocks(rng, workload)}


def _with_answers(rng: Random, requests: list[Row]) -> list[Row]:
    """Give some prompts up to four answers, of unlike lengths perhaps."""
    answers: list[Row] = []
    for request in requests:
        leader = len(answers)
        answers.append(request | {"arrival": leader})
        for _ in range(rng.choice((0, 0, 1, 2, 3))):
            answers.append(request | {"arrival": leader, "leader": leader})
    return answers


def _add_drafts(rng: Random, workload: Row) -> None:
    num_drafts, groups = rng.randint(1, 5), workload["groups"]
    drafter = rng.choice(("lookup", "draft_model", "eagle", "eagle", "mtp"))
    if drafter == "mtp" and any(group["kind"] == "state" for group in groups):  # vLLM may wait for ever
        drafter = "eagle"
    if drafter == "mtp":  # the block that a hit drops has to hold what the modules read ahead
        num_drafts = min(num_drafts, max(group["block_size"] for group in groups))
    workload["alphabet"] = rng.choice((1, 2, 3))
    workload["speculation"] = {"num_drafts": num_drafts, "alphabet": workload["alphabet"], "drafter": drafter}
    least = workload["max_num_seqs"] * (2 + num_drafts)
    if drafter == "draft_model":  # it takes one token of the budget, and vLLM waits for a state's block in one chunk
        least = max([least, *(group["block_size"] + 1 for group in groups if group["kind"] == "state")])
    workload["max_num_batched_tokens"] = max(workload["max_num_batched_tokens"], least)
    if workload.get("long_prefill_token_threshold", 0) <= num_drafts:  # vLLM fails an assertion
        workload.pop("long_prefill_token_threshold", None)
    if rng.random() < 0.3:
        longest = max(len(request["prompt"]) for request in workload["requests"])
        workload["max_model_len"] = longest + rng.randint(2, 12)
    if drafter in ("eagle", "mtp") and rng.random() < 0.6:
        workload["groups"] = [group | {"eagle": True} if rng.random() < 0.4 else group for group in groups]


def _add_priorities(rng: Random, workload: Row) -> None:
    requests = workload["requests"]
    workload["policy"] = "priority"
    if rng.random() < 1 / 3:  # more than ten: ids are compared as texts
        last = requests[-1]["step"]
        again = [one | {"step": last + rng.randint(0, 3)} for one in requests if "leader" not in one]
        requests += [one | {"arrival": len(requests) + number} for number, one in enumerate(rng.choices(again, k=5))]
    priorities = rng.choice(((0, 1), (-1, 0, 0, 2), tuple(range(-3, 4))))
    num_arrivals = rng.choice((1, 3, len(requests)))
    for number, request in enumerate(requests):
        if "leader" in request:
            leader = requests[request["leader"]]
            request |= {"priority": leader["priority"], "arrival": leader["arrival"]}
            continue
        request["priority"] = rng.choice(priorities)
        request["arrival"] = number * num_arrivals // len(requests)


def _add_aborts(rng: Random, workload: Row) -> None:
    last = workload["requests"][-1]["step"] + 30
    moments: tuple[list[str], ...] = ([], ["update"]) if workload.get("async") else ([],)
    workload["aborts"] = [
        [rng.randint(1, last), rng.randrange(len(workload["requests"])), *rng.choice(moments)]
        for _ in range(rng.randint(1, 4))
    ]


def _add_tier(rng: Random, workload: Row) -> None:
    """Let a tier hold whole blocks of some prompts, at once; the last token is always left to compute."""
    if [group["kind"] for group in workload["groups"]] != ["full"]:  # vLLM asks the tier about one group alone
        return
    size = workload["block_size"]
    tokens = {
        str(number): rng.randint(1, num_blocks) * size
        for number, request in enumerate(workload["requests"])
        if (num_blocks := (len(request["prompt"]) - 1) // size) and rng.random() < 0.5
    }
    workload["tier"] = {"delay": 0, "tokens": tokens, "again": {}}


def _num_blocks(rng: Random, workload: Row) -> int:
    """With so many a request can always be finished alone, with its drafts and the drafter's slots."""
    num_drafts = workload.get("speculation", {}).get("num_drafts", 0)
    longest = max(len(one["prompt"]) + one["max_tokens"] for one in workload["requests"]) + 2 * num_drafts + 1
    needed = sum(-(-longest // group["block_size"]) for group in workload["groups"])
    needed += sum(
        2 + num_drafts + ("checkpoint_alignment" in group) for group in workload["groups"] if group["kind"] == "state"
    )
    return int(needed + rng.choice((0, 0, rng.randint(0, needed))))
