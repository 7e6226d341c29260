"""Traffics as workloads of vllm_upstream_traffic, and what requests found by `simulate` and by the doctor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import count, islice
from math import ceil
from typing import Any

import labengine
from differential.vllm_process import VllmProcess
from labengine.config import TUNING, EngineConfig
from labengine.core.editions import edition
from labengine.engine.request_options import salt_of, salted
from labengine.engine.workload import group_specs
from labengine.events import Event, PrefixHit, RequestPreempted, RequestScheduled, StepStarted
from labengine.prefix_doctor.look_ups.look_up import LookUp
from labengine.prefix_doctor.play.player import play
from labengine.prefix_doctor.play.setting import Setting
from labengine.prefix_doctor.traffic.prompt import Prompt, Traffic
from labengine.record.hooks import Hooks

Row = dict[str, Any]

UNKNOWN = 1 << 40
"""The first of the tokens of unknown answers, all different."""


def workload_of(prompts: Iterable[Prompt], config: EngineConfig) -> Row:
    """Return prompts as a workload; steps take a second each."""
    groups = [{key: value for key, value in asdict(group).items() if value is not None} for group in config.groups]
    unknown = count(UNKNOWN)
    return {
        "num_blocks": config.num_blocks,
        "block_size": config.hash_block_size,
        "hash_block_size": config.hash_block_size,
        "groups": groups,
        "max_num_seqs": config.max_num_seqs,
        "max_num_batched_tokens": config.max_num_batched_tokens,
        "watermark": config.watermark,
        "long_prefill_token_threshold": config.long_prefill_token_threshold,
        "retention_interval": config.retention_interval,
        "requests": [_request(prompt, unknown) for prompt in prompts],
    }


def _request(prompt: Prompt, unknown: Iterator[int]) -> Row:
    answer = [*prompt.answer, *islice(unknown, prompt.num_answer - len(prompt.answer))]
    adapters = [value for domain, value in prompt.extra_keys if domain != "cache_salt"]
    assert len(adapters) <= 1 and not prompt.priority
    return {
        "step": ceil(prompt.arrival or 0),
        "prompt": list(prompt.token_ids),
        "images": [list(image) for image in prompt.images],
        "answer": answer,
        "max_tokens": prompt.num_answer,
        "salt": salt_of(prompt.extra_keys),
        "adapter": adapters[0] if adapters else None,
        "skip_reading_prefix_cache": prompt.skips_cache,
    }


def totals_on_vllm(vllm: VllmProcess, traffic: Iterable[Prompt], setting: Setting) -> Row:
    """Return the sums over replicas of what vLLM's schedulers find and compute."""
    replicas = on_replicas(traffic, setting.num_replicas, setting.routing)
    runs = [vllm.run_traffic(workload_of(prompts, setting.config)) for prompts in replicas]
    return {
        "num_hit": sum(sum(run["hits"]) for run in runs),
        "num_computed": sum(sum(run["computed"]) for run in runs),
        "num_steps": sum(run["num_steps"] for run in runs),
        "num_preemptions": sum(run["num_preemptions"] for run in runs),
    }


def on_replicas(prompts: Iterable[Prompt], num_replicas: int, routing: str) -> list[list[Prompt]]:
    """Return each replica's prompts: as named, in turn, or together if their first tokens are equal."""
    found: list[list[Prompt]] = [[] for _ in range(num_replicas)]
    homes: dict[tuple[int, ...], int] = {}
    for number, prompt in enumerate(prompts):
        turn = number if routing != "recorded" or prompt.replica is None else prompt.replica
        if routing == "prefix":
            turn = homes.setdefault(tuple(prompt.token_ids[:16]), len(homes))
        found[turn % num_replicas].append(prompt)
    return found


class EventFigures:
    """Adds up the events of a run."""

    def __init__(self, num_requests: int) -> None:
        self._hits, self._computed = [-1] * num_requests, [0] * num_requests
        self._in_step: dict[int, int] = {}
        self._num_steps = self._num_preemptions = 0

    def note(self, event: Event) -> None:
        """Add an event."""
        match event:
            case StepStarted():
                self._end_step()
                self._num_steps += 1
            case PrefixHit():
                self._found = event.num_tokens
            case RequestScheduled():
                if self._hits[event.request_id] < 0:
                    self._hits[event.request_id] = self._found
                self._in_step[event.request_id] = event.num_tokens
            case RequestPreempted():
                self._in_step.pop(event.request_id, None)
                self._num_preemptions += 1

    def _end_step(self) -> None:
        for number, num_tokens in self._in_step.items():
            self._computed[number] += num_tokens
        self._in_step.clear()

    def to_dict(self) -> Row:
        """Return the figures as vllm_upstream_traffic gives them."""
        self._end_step()
        totals = {"num_steps": self._num_steps, "num_preemptions": self._num_preemptions}
        return {"hits": self._hits, "computed": self._computed, **totals}


def simulated(workload: Row) -> Row:
    """Return what `simulate` finds and computes on edition vllm."""
    wanted = workload["requests"]
    requests = [{key: value for key, value in one.items() if key != "answer"} for one in wanted]
    figures, hooks = EventFigures(len(wanted)), Hooks(strict=True)
    hooks.subscribe(figures.note)

    def next_token(number: int, position: int) -> int:
        return int(wanted[number]["answer"][position - len(wanted[number]["prompt"])])

    labengine.simulate(workload | {"requests": requests}, "vllm", next_token, hooks)
    return figures.to_dict()


def played(workload: Row) -> Row:
    """Return what the doctor's player finds and computes on edition vllm; its sums are those of its events."""
    wanted = workload["requests"]
    has_times = any(one["step"] for one in wanted)
    traffic = Traffic("random", lambda: (_prompt(number, one, has_times) for number, one in enumerate(wanted)))
    figures, hooks = EventFigures(len(wanted)), Hooks(strict=True)
    hooks.subscribe(figures.note)
    settings = {key: workload[key] for key in TUNING if workload.get(key) is not None}
    limits = workload["max_num_seqs"], workload["max_num_batched_tokens"]
    config = EngineConfig(workload["num_blocks"], group_specs(workload), *limits, **settings)
    first: dict[int, LookUp] = {}

    def judged(number: int, _: Prompt, look_up: LookUp) -> None:
        first.setdefault(number, look_up)
        assert look_up.num_hit + sum(miss.num_tokens for miss in look_up.misses) == look_up.num_tokens

    sums = play(traffic, Setting(config, edition("vllm")), judged, hooks=hooks).figures
    found = figures.to_dict()
    assert [first[number].num_hit for number in range(len(wanted))] == found["hits"]
    totals = (sum(found["hits"]), sum(found["computed"]), found["num_steps"], found["num_preemptions"])
    assert (sums.num_hit, sums.num_computed, sums.num_steps, sums.num_preemptions) == totals
    return found


def _prompt(number: int, wanted: Row, has_times: bool) -> Prompt:
    return Prompt(
        str(number),
        wanted["prompt"],
        arrival=float(wanted["step"]) if has_times else None,
        num_answer=wanted["max_tokens"],
        answer=wanted["answer"],
        extra_keys=salted((), wanted.get("salt")),
    )
