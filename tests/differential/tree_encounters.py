"""What a workload meets on our core, to count and to check that a comparison covers what it is for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from differential.comparison import first_difference
from differential.minisgl_comparison import MiniSglangRun
from differential.sglang_comparison import SglangRun
from differential.tree_workloads import Workload
from labengine.core.editions import edition as edition_named
from labengine.core.parts import Parts
from labengine.events import BlockMerged, NodeEvicted, NodeSplit, RequestFinished, RequestPreempted
from labengine.record.hooks import Hooks

Row = dict[str, Any]

_EVENTS = {RequestPreempted: "retraction", NodeEvicted: "eviction", NodeSplit: "split", BlockMerged: "duplicate"}


def run_of(workload: Workload, edition: str, parts: Parts | None = None, hooks: Hooks | None = None) -> MiniSglangRun:
    """A workload on our core, in the terms of the edition's engine."""
    parts = edition_named(edition) if parts is None else parts
    return (SglangRun if edition == "sglang" else MiniSglangRun)(workload, parts, hooks)


class Compared:
    """Compares runs with upstream's, and counts the workloads that meet each thing."""

    def __init__(self, edition: str) -> None:
        self._edition = edition
        self.met: Counter[str] = Counter()
        self.num_steps = 0

    def difference(self, workload: Workload, rows: list[Row]) -> str | None:
        """Describe the first difference; None when both sides are equal after every step."""
        met, hooks = set[str](), Hooks(strict=True)
        hooks.subscribe(lambda event: met.add(_EVENTS[type(event)]), *_EVENTS)
        hooks.subscribe(lambda event: met.update(["abort"] if event.reason == "abort" else ()), RequestFinished)
        ours = list(run_of(workload, self._edition, hooks=hooks).rows())
        met.update(_of_rows(workload, ours))
        self.met.update(met)
        self.num_steps += len(rows)
        return first_difference(rows, ours)


def _of_rows(workload: Mapping[str, Any], rows: list[Row]) -> set[str]:
    scheduled = [one for row in rows for one in row["scheduled"]]
    lengths = {wanted["uid"]: len(wanted["prompt"]) for wanted in workload["requests"]}
    met = {"page above 1"} if workload["page_size"] > 1 else set()
    met |= {"hit" for uid, start, num_tokens in scheduled if 0 < start < lengths[uid]}
    return met | {"chunk" for uid, start, num_tokens in scheduled if start + num_tokens < lengths[uid]}
