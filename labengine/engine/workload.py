"""Running a workload on the simulated model, with the real scheduler and core."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from labengine.config import (
    TUNING,
    ConfigError,
    EngineConfig,
    GroupSpec,
    SamplingParams,
    checked_bool,
    checked_call,
    checked_int,
    checked_token_ids,
    is_single_int,
    shown,
)
from labengine.core.editions import edition as edition_named
from labengine.core.editions import with_policy
from labengine.core.parts import Parts
from labengine.core.proposer import Proposer
from labengine.core.request import Request
from labengine.engine.checked_proposer import drafts_of, refuse_wrong_proposer
from labengine.engine.engine import Engine
from labengine.engine.request_options import RequestOptions, salted
from labengine.engine.simulated import NextToken, SimulatedRunner, default_next_token
from labengine.record.hooks import Hooks
from labengine.record.snapshot import Snapshot

_WORKLOAD_KEYS = {"num_blocks", "block_size", "max_num_seqs", "max_num_batched_tokens", "requests"}
_REQUEST_KEYS = {"step", "prompt", "max_tokens"}
_SETTINGS = (*TUNING, "max_model_len")
"""Settings of EngineConfig that a workload may set; None is the default."""


def simulate(
    workload: Mapping[str, Any],
    edition: str | Parts = "labengine",
    next_token: NextToken | None = None,
    hooks: Hooks | None = None,
    speculation: Proposer | None = None,
) -> list[Snapshot]:
    """Run a workload on the simulated model; return one snapshot per step, whose `step` is the workload's clock from 0.

    workload: {num_blocks, block_size, max_num_seqs, max_num_batched_tokens, requests: [{step, prompt: [ids],
    max_tokens, salt?, priority?, arrival?, skip_reading_prefix_cache?}], groups?: [{kind, block_size?, window?,
    eagle?}], watermark?, long_prefill_token_threshold?, retention_interval?, hash_block_size?, policy?,
    max_model_len?}. A request joins before step `step`; requests are numbered from 0 in list order; while none waits or
    runs, the clock jumps to the next arrival. A request's `arrival` is its rank among those of equal priority, by
    default its number.
    Raises ValueError, before the first step, for a request that can never fit and for unknown keys. hooks: their
    listeners receive every event of the run. edition: its name, or Parts that replace those of `labengine`.
    speculation: the proposer, as for Lab.
    """
    if next_token is not None:
        checked_call("next_token", next_token, "request_id", "position")
    if not isinstance(hooks, Hooks | None):
        raise ConfigError(f"hooks must be a labengine.record.hooks.Hooks, got {shown(hooks)}")
    runner = SimulatedRunner(next_token or default_next_token)
    if speculation is not None:
        refuse_wrong_proposer(speculation)
    config, parts = _config(workload, speculation), _parts(edition, workload.get("policy", "fcfs"))
    engine = Engine(config, runner, parts, Hooks() if hooks is None else hooks, proposer=speculation)
    arrivals = _arrivals(workload, engine)
    snapshots = []
    clock = 0
    while arrivals or not engine.scheduler.is_idle:
        if engine.scheduler.is_idle:
            clock = max(clock, arrivals[0][0])
        while arrivals and arrivals[0][0] <= clock:
            engine.queue(arrivals.popleft()[1])
        engine.step()
        snapshots.append(replace(engine.snapshot(), step=clock))
        clock += 1
    return snapshots


def _parts(edition: str | Parts, policy: str) -> Parts:
    if isinstance(edition, Parts):
        return with_policy(edition, "labengine", policy)
    return edition_named(edition, policy)


def _arrivals(workload: Mapping[str, Any], engine: Engine) -> deque[tuple[int, Request]]:
    """Return (step, request) in the order of joining, after checking every request."""
    arrivals = []
    for request_id, wanted in enumerate(rows("requests", workload["requests"])):
        optional = {"salt", "priority", "arrival", "skip_reading_prefix_cache"}
        check_keys(f"request {request_id}", wanted, _REQUEST_KEYS, optional)
        if not is_single_int(wanted["step"]) or wanted["step"] < 0:
            raise ConfigError(f"request {request_id}: step must be a non-negative integer, got {wanted['step']!r}")
        skips = wanted.get("skip_reading_prefix_cache", False)
        sampling = SamplingParams(wanted["max_tokens"], ignore_eos=True, skip_reading_prefix_cache=skips)
        options = RequestOptions(sampling, salted((), wanted.get("salt")), wanted.get("priority", 0))
        request = engine.maker.request(request_id, checked_token_ids(wanted["prompt"]), options)
        request.arrival = checked_int("arrival", wanted.get("arrival", request_id))
        arrivals.append((int(wanted["step"]), request))
    return deque(sorted(arrivals, key=lambda arrival: (arrival[0], arrival[1].request_id)))


def _config(workload: Mapping[str, Any], speculation: Proposer | None) -> EngineConfig:
    check_keys("workload", workload, _WORKLOAD_KEYS, {"groups", "policy", *_SETTINGS})
    num_drafts, drafter = drafts_of(speculation)
    return EngineConfig(
        num_blocks=workload["num_blocks"],
        groups=group_specs(workload),
        max_num_seqs=workload["max_num_seqs"],
        max_num_batched_tokens=workload["max_num_batched_tokens"],
        eagle_groups=eagle_groups(workload),
        num_drafts=num_drafts,
        drafter=drafter,
        **{key: workload[key] for key in _SETTINGS if workload.get(key) is not None},
    )


def group_specs(workload: Mapping[str, Any]) -> tuple[GroupSpec, ...]:
    """Return the workload's KV-cache groups, in these keys or vLLM's; by default one of full attention."""
    groups = rows("groups", workload.get("groups") or [{"kind": "full"}])
    return tuple(_group_spec(f"group {index}", group, workload["block_size"]) for index, group in enumerate(groups))


def eagle_groups(workload: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the indices of the workload's groups that are marked as the drafter's ("eagle": true)."""
    groups = workload.get("groups") or ()
    return tuple(index for index, group in enumerate(groups) if checked_bool("eagle", group.get("eagle", False)))


def _group_spec(what: str, group: Any, block_size: int) -> GroupSpec:
    if isinstance(group, Mapping) and "type" in group:
        kind = {"full": "full", "swa": "sliding_window", "mamba": "state"}.get(str(group["type"]), group["type"])
        renamed = {"sliding_window": "window"}
        group = {"kind": kind, **{renamed.get(key, key): value for key, value in group.items() if key != "type"}}
    check_keys(what, group, {"kind"}, {"block_size", "window", "eagle", "checkpoint_alignment"})
    size, alignment = group.get("block_size", block_size), group.get("checkpoint_alignment")
    return GroupSpec(size, group["kind"], group.get("window"), alignment)


def rows(name: str, value: Any) -> Sequence[Any]:
    """Return a list. Raises ConfigError for anything else."""
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f"{name} must be a list, got {shown(value)}")
    return value


def check_keys(what: str, mapping: Any, required: set[str], optional: set[str]) -> None:
    """Raise ConfigError unless a mapping has all required keys, and no others but optional ones."""
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{what} must be a mapping with the keys {sorted(required)}, got {mapping!r}")
    unknown, missing = set(mapping) - required - optional, required - set(mapping)
    if unknown:
        raise ConfigError(f"{what} has unknown keys {sorted(unknown)}; known: {sorted(required | optional)}")
    if missing:
        raise ConfigError(f"{what} is missing {sorted(missing)}")
