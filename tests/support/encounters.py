"""Counts what a workload runs into, so that a set of workloads can prove what it tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from labengine import events as ev
from labengine.core.editions import EDITIONS
from labengine.core.parts import Parts
from labengine.core.scheduler import Scheduler
from labengine.engine.workload import simulate
from labengine.record.hooks import Hooks
from workloads import Workload

ENCOUNTERS = (
    "preemption",
    "self-preemption",
    "hit on a live block",
    "hit on a free block",
    "eviction",
    "chunked prefill",
    "block completed in decode",
    "budget of one block",
)
"""What every edition must meet."""

MERGES = ("merge at prefill", "merge at decode")
"""What the merging editions must meet too."""


def encounters(workload: Workload, edition: str) -> Counter[str]:
    """How often the workload met what."""
    counts: Counter[str] = Counter()
    parts = Parts(scheduler=_counting(EDITIONS[edition].scheduler, counts)).overriding(EDITIONS[edition])
    hooks = Hooks(strict=True)
    hooks.subscribe(_Counter(workload, counts).hear)
    simulate(workload.for_simulate(), parts, workload.next_token, hooks)
    counts["budget of one block"] = int(workload.max_num_batched_tokens == workload.block_size)
    return +counts


def workloads_meeting(workloads: Iterable[Workload], edition: str) -> Counter[str]:
    """How many of the workloads met each thing at least once."""
    met: Counter[str] = Counter()
    for workload in workloads:
        met.update(encounters(workload, edition).keys())
    return met


def _counting(scheduler: type[Scheduler], counts: Counter[str]) -> type[Scheduler]:
    class CountingScheduler(scheduler):  # type: ignore[valid-type, misc]
        def allocate_or_preempt(self, *args: Any) -> bool:
            has_blocks: bool = super().allocate_or_preempt(*args)
            counts["self-preemption"] += not has_blocks
            return has_blocks

    return CountingScheduler


class _Counter:
    def __init__(self, workload: Workload, counts: Counter[str]) -> None:
        self._counts = counts
        self._num_tokens: Counter[int] = Counter()
        self._in_prefill: dict[int, bool] = {}

    def hear(self, event: ev.Event) -> None:
        match event:
            case ev.RequestAdded():
                self._num_tokens[event.request_id] = len(event.token_ids)
            case ev.TokenSampled():
                self._num_tokens[event.request_id] += 1
            case ev.RequestScheduled():
                self._in_prefill[event.request_id] = event.is_prefill
                is_chunk = event.start + event.num_tokens < self._num_tokens[event.request_id]
                self._counts["chunked prefill"] += is_chunk
            case ev.RequestPreempted():
                self._counts["preemption"] += 1
            case ev.BlockTouched():
                self._counts["hit on a free block" if event.ref_count == 1 else "hit on a live block"] += 1
            case ev.BlockEvicted():
                self._counts["eviction"] += 1
            case ev.BlockMerged():
                phase = "prefill" if self._in_prefill[event.request_id] else "decode"
                self._counts[f"merge at {phase}"] += 1
                self._counts["block completed in decode"] += phase == "decode"
            case ev.BlockCached():
                self._counts["block completed in decode"] += not self._in_prefill[event.request_id]
