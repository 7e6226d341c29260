"""Where editions vllm and vllm-async depart from vLLM 0.32: docs/editions.md, and what no comparison asks for.

The comparisons refuse a workload that asks for a departure (`refuse_departures`). A departure with a `bridge` is asked
for all the same: the bridge makes both sides alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations, takewhile
from typing import Any

from labengine.config import ConfigError, EngineConfig, SamplingParams
from labengine.core.editions import VLLM
from labengine.core.journal import Journal
from labengine.core.request import Request
from labengine.core.scheduler import Scheduler
from labengine.engine.workload import eagle_groups, group_specs
from labengine.record.hooks import Hooks

Row = Mapping[str, Any]

MAX_MODEL_LEN = 8192
"""The longest request of the vLLM that the workloads ran on (vllm_upstream_scheduler)."""

KEYS = {
    "num_blocks",
    "block_size",
    "groups",
    "hash_block_size",
    "retention_interval",
    "enable_caching",
    "max_model_len",
}
KEYS |= {"max_num_seqs", "max_num_batched_tokens", "watermark", "long_prefill_token_threshold", "streams", "alphabet"}
KEYS |= {"policy", "requests", "ops", "tier", "max_steps", "async", "aborts", "resets", "broken"}
KEYS |= {"speculation", "eagle", "max_model_len"}
REQUEST_KEYS = {"step", "prompt", "max_tokens", "salt", "priority", "arrival", "leader", "skip_reading_prefix_cache"}
OP_KEYS = {"op", "req", "tokens", "salt", "n", "lookup", "external", "delay_cache", "blocks", "lookahead"}
TIER_KEYS = {"delay", "tokens", "again"}
"""What a compared workload may ask for. All else is a setting that no edition has, or a departure below."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A row of the table in docs/editions.md.

    edition, vllm: what each does. scenarios: ids whose columns show it. is_asked_for: whether a workload would show it.
    bridge: what makes both sides alike in a comparison; empty if compared workloads do not ask for it.
    """

    name: str
    edition: str
    vllm: str
    is_asked_for: Callable[[Row], bool]
    scenarios: tuple[str, ...] = ()
    bridge: str = ""


def departures_of(workload: Row) -> list[str]:
    """Return the names of the departures that a workload would show."""
    return [one.name for one in DEPARTURES if not one.bridge and one.is_asked_for(workload)]


def refuse_departures(workload: Row) -> None:
    """Raise ValueError for a workload on which the editions do not do what vLLM 0.32 does."""
    if names := departures_of(workload):
        raise ValueError(f"not to be compared with vLLM: {', '.join(names)} (docs/editions.md)")


# -- what a workload asks for ------------------------------------------------------------------------------------------


def _tier(workload: Row) -> Row:
    return workload.get("tier") or {}


def _has_late_loads(workload: Row) -> bool:
    return bool(_tier(workload).get("delay"))


def _num_loaded(workload: Row, number: int) -> int:
    return int(_tier(workload)["tokens"].get(str(number), 0))


def _has_foreign_keys(workload: Row) -> bool:
    """Return True if a workload has a setting that no other departure accounts for."""
    found = set(workload) - KEYS - {"reset_running_requests"}
    found |= {key for request in workload.get("requests", ()) for key in request} - REQUEST_KEYS
    found |= {key for op in workload.get("ops", ()) for key in op} - OP_KEYS
    found |= set(_tier(workload)) - TIER_KEYS - {"send", "pinning", "defer", "failing"}
    return bool(found) or workload.get("enable_caching") is False


def _never_fits(workload: Row) -> bool:
    """Return True if edition vllm refuses a request because the pool could not hold it, with all its drafts."""
    if "ops" in workload:
        return False
    limits = {key: workload[key] for key in ("num_blocks", "max_num_batched_tokens")}
    drafts = {"num_drafts": 0, "drafter": "lookup"} | workload.get("speculation", {})
    config = EngineConfig(
        groups=group_specs(workload),
        hash_block_size=workload.get("hash_block_size"),
        eagle_groups=eagle_groups(workload),
        num_drafts=drafts["num_drafts"],
        drafter=drafts["drafter"],
        **limits,
    )
    scheduler = VLLM.assemble(config, Hooks(), Journal())
    return any(_is_refused(scheduler, request) for request in workload["requests"])


def _is_refused(scheduler: Scheduler, row: Row) -> bool:
    sampling = SamplingParams(max_tokens=row["max_tokens"])
    request = Request(0, list(row["prompt"]), sampling, 0, len(scheduler.config.groups))
    try:
        scheduler.refuse_what_never_fits(request)
    except ConfigError:
        return True
    return False


def _num_kv_tokens(request: Row) -> int:
    """Return the KV slots that a request fills: the last sampled token's KV is never written."""
    return len(request["prompt"]) + int(request["max_tokens"]) - 1


def _loads_contend(workload: Row) -> bool:
    """Return True if several late loads may want blocks that not all of them can have."""
    requests = workload.get("requests", ())
    if not _has_late_loads(workload) or sum(_num_loaded(workload, n) > 0 for n in range(len(requests))) < 2:
        return False
    size = workload["block_size"]
    return sum(-(-_num_kv_tokens(request) // size) for request in requests) > workload["num_blocks"] - 1


def _registered_otherwise(workload: Row) -> bool:
    """Return True if the scan may end before a landed load, or if another request fills one of its blocks as well."""
    if not _has_late_loads(workload):
        return False
    requests = workload["requests"]
    num_tokens = sum(map(_num_kv_tokens, requests))
    if len(requests) > workload["max_num_seqs"] or num_tokens > workload["max_num_batched_tokens"]:
        return True
    return any(_share_a_filled_block(workload, *pair) for pair in combinations(enumerate(requests), 2))


def _share_a_filled_block(workload: Row, one: tuple[int, Row], other: tuple[int, Row]) -> bool:
    size, delay = workload["block_size"], _tier(workload)["delay"]
    (first, a), (second, b) = one, other
    loaded = [_num_loaded(workload, number) for number in (first, second)]
    is_separate = abs(a["step"] - b["step"]) > delay + 1
    pairs = zip(a["prompt"], b["prompt"], strict=False)
    num_shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)) // size * size
    return not is_separate and num_shared > min(loaded) and max(loaded) > min(loaded)


def _is_loaded_oddly(workload: Row) -> bool:
    """Return True if the tier's tokens end inside a block, or with the prompt."""
    size, requests = workload.get("block_size", 1), workload.get("requests", ())
    counts = [(_num_loaded(workload, n), len(r["prompt"])) for n, r in enumerate(requests)] if _tier(workload) else []
    return any(count % size or count >= num_tokens for count, num_tokens in counts)


def _is_too_long(workload: Row) -> bool:
    return any(_num_kv_tokens(request) >= MAX_MODEL_LEN for request in workload.get("requests", ()))


DEPARTURES = (
    Departure(
        "an abort during a load",
        "frees the blocks at once; the tier stops loading",
        "keeps the blocks until the load is reported",
        lambda workload: _has_late_loads(workload) and "aborts" in workload,
        ("vllm-32255", "vllm-ascend-16662"),
    ),
    Departure(
        "the end of a request whose KV is being sent",
        "frees its blocks without asking any connector",
        "keeps them while a connector or an encoder cache still needs them",
        lambda workload: any(_tier(workload).get(key) for key in ("send", "pinning")),
    ),
    Departure(
        "a step in flight, with a tier",
        "does not arise: `vllm` has no step in flight, and `vllm-async` refuses a tier",
        "if the connector consumes KV, defers every free until the step is done",
        lambda workload: bool(_tier(workload)) and bool(workload.get("async") or _tier(workload).get("defer")),
        ("vllm-45357", "vllm-47728", "vllm-49674"),
    ),
    Departure(
        "a request that the pool cannot hold",
        "`add` refuses the request",
        "leaves it waiting, along with all requests behind it",
        _never_fits,
        ("vllm-39734",),
    ),
    Departure(
        "late loads that contend for blocks",
        "starts every load that fits, and takes one back if nothing else can advance",
        "starts a load only if the other requests' needs are covered, and never takes one back",
        _loads_contend,
        ("vllm-57104",),
    ),
    Departure(
        "late loads, with priorities",
        "lets a request whose KV has arrived wait where its priority puts it",
        "puts requests that hold blocks before all others",
        lambda workload: _has_late_loads(workload) and workload.get("policy") == "priority",
    ),
    Departure(
        "late loads that have landed",
        "registers all of them when the step starts, and counts their tokens",
        "registers each one when the scan reaches it",
        _registered_otherwise,
    ),
    Departure(
        "a load that fails",
        "drops the whole load; the request recomputes its tokens and does not ask again",
        "ends the request (`fail`), or keeps the tokens before the failure (`recompute`)",
        lambda workload: "failing" in _tier(workload),
    ),
    Departure(
        "how much a tier supplies",
        "complete blocks, never the last token",
        "any number of tokens; after a late load of the whole prompt, recomputes the last token",
        _is_loaded_oddly,
    ),
    Departure(
        "which blocks are saved",
        "each block once, in the step that fills it",
        "whichever the connector chooses",
        lambda workload: bool(_tier(workload)),
        ("vllm-47235",),
        bridge="both sides save nothing",
    ),
    Departure(
        "a tier that says “ask again”",
        "has no such answer",
        "skips the request in this step",
        lambda workload: bool(_tier(workload).get("again")),
        ("vllm-57841",),
        bridge="`skips` is overridden",
    ),
    Departure(
        "late loads, with drafts",
        "takes all the blocks that a load needs",
        "in addition to those, leaves enough blocks free for a decode with its drafts",
        lambda workload: _has_late_loads(workload) and "speculation" in workload,
        ("vllm-57104",),
    ),
    Departure(
        "`retention_interval`",
        "None by default: a window keeps every block",
        "0 by default",
        lambda workload: bool(workload.get("groups")),
        ("vllm-57610",),
        bridge="both sides are given the same value",
    ),
    Departure(
        "a reset while requests are running",
        "refuses the reset",
        "preempts them first, with `reset_running_requests=True`",
        lambda workload: "reset_running_requests" in workload,
        ("vllm-9744",),
    ),
    Departure(
        "`max_model_len`",
        "`simulate` has none unless you pass one",
        "always has one, at which a request ends",
        _is_too_long,
    ),
    Departure(
        "other settings and inputs",
        "none of those that `conform` refuses (vllm.md)",
        "pipeline parallelism, adapter limits, images …",
        _has_foreign_keys,
    ),
)
