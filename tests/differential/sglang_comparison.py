"""labengine's core in SGLang's terms: the same rows as sglang_upstream makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from differential.minisgl_comparison import MiniSglangRun, Row, nodes_of
from differential.tree_workloads import Workload
from labengine.core.editions import edition
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.sglang.scheduler import SglangScheduler
from labengine.record.hooks import Hooks


def parts_for(workload: Workload, parts: Parts) -> Parts:
    """The parts with a workload's settings, and a scheduler that rests only when SGLang's loop does."""

    class Scheduler(parts.scheduler):  # type: ignore[misc,name-defined]
        first_new_token_ratio = workload["new_token_ratio"]
        num_retract_steps = workload["retract_steps"]

        def rest_if_idle(self) -> None:
            """Nothing: a request that arrives in the iteration after the last one's end finds no idle loop."""

    return Parts(Scheduler).overriding(parts)


class SglangRun(MiniSglangRun):
    """A workload of SGLang's on our core, one loop iteration after the other."""

    budget = "chunked_prefill_size"

    def __init__(self, workload: Workload, parts: Parts | None = None, hooks: Hooks | None = None) -> None:
        super().__init__(workload, parts_for(workload, edition("sglang") if parts is None else parts), hooks)

    def _iterate(self) -> None:
        if self._scheduler.is_idle:
            SglangScheduler.rest_if_idle(self._scheduler)
        super()._iterate()

    @property
    def _scheduler(self) -> SglangScheduler:
        scheduler = self.engine.scheduler
        assert isinstance(scheduler, SglangScheduler)
        return scheduler

    def _row(self, before: Mapping[int, int]) -> Row:
        scheduler, snapshot = self._scheduler, self.engine.snapshot()
        tree, chunked = scheduler.manager.pool.tree, scheduler.chunked
        assert tree is not None
        return {
            "scheduled": [[self.uids[e.request_id], e.start, e.num_tokens] for e in self.scheduled],
            "waiting": [
                [self.uids[request.request_id], request.status == "preempted", request.num_generated_tokens]
                for request in scheduler.waiting
                if request is not chunked
            ],
            "chunked": [self._request(chunked)] if chunked is not None else [],
            "running": [self._request(request) for request in scheduler.running],
            "free_pages": list(snapshot.free_queue),
            "evictable": tree.num_evictable * self.page_size,
            "protected": sum(len(node.block_ids) for node in snapshot.tree if node.num_locks) * self.page_size,
            "new_token_ratio": round(scheduler.new_token_ratio, 6),
            "tree": nodes_of(snapshot),
        }

    def _request(self, request: Request) -> list[Any]:
        tree = self._scheduler.manager.pool.tree
        assert tree is not None
        end = tree.held_by(request).end * self.page_size
        numbers = request.num_computed_tokens, end, request.num_generated_tokens
        return [self.uids[request.request_id], *numbers, list(request.block_tables[0])]
