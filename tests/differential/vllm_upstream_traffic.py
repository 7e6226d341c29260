"""Traffic with known answers on vLLM's synchronous Scheduler, without a model. Runs where vLLM is installed.

A workload has the keys of vllm_upstream_scheduler, and each request its `answer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from differential import vllm_upstream_pool as pool_rows
from differential.vllm_upstream_scheduler import Run, rows_of


class Unlabelled(pool_rows.Labels):
    """Labels for runs whose rows name no content."""

    def learn(self, request: Any) -> None:
        """Do nothing."""


class TrafficRun(Run):
    """One workload under way, with rows that are cheap to make."""

    labels_class = Unlabelled

    def token_at(self, request_id: str, position: int) -> int:
        """Return the answer's token at a position."""
        wanted = self.workload["requests"][int(request_id)]
        return int(wanted["answer"][position - len(wanted["prompt"])])

    def row(self, clock: int, scheduled: dict[int, int]) -> dict[str, Any]:
        """scheduled: {request: [tokens found in the cache and computed before, tokens of the step]}."""
        computed = {number: self.requests[str(number)].num_computed_tokens for number in scheduled}
        starts = {number: [computed[number] - n, n] for number, n in scheduled.items()}
        return {"scheduled": starts, "preempted": list(self.preempted)}


def run_traffic(workload: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one row: per request the tokens found at its first admission and those computed for it, and totals."""
    hits, computed = [-1] * len(workload["requests"]), [0] * len(workload["requests"])
    rows = rows_of(TrafficRun(workload))
    for row in rows:
        for number, (start, num_tokens) in row["scheduled"].items():
            hits[number] = start if hits[number] < 0 else hits[number]
            computed[number] += num_tokens
    totals = {"num_steps": len(rows), "num_preemptions": sum(len(row["preempted"]) for row in rows)}
    return [{"hits": hits, "computed": computed, **totals}]
