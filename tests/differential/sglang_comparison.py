"""labengine's core in SGLang's terms: the same rows as tests/differential/sglang_upstream.py makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from differential.minisgl_comparison import MiniSglangRun, Row, Workload, nodes_of
from labengine.core.editions import edition
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.sglang.scheduler import SglangScheduler
from labengine.record.hooks import Hooks

FIRST_PAGE = 1
"""SGLang's page 0 is padding; page n + 1 is compared with block n."""

NUM_SENTINELS = 4
"""Nodes that SGLang creates after the root, as ends of lists that full attention does not use."""


def parts_for(workload: Workload) -> Parts:
    """The edition with a workload's settings. SGLang's loop goes idle when nothing is there to run in an iteration."""

    class Scheduler(SglangScheduler):
        first_new_token_ratio = workload["new_token_ratio"]
        num_retract_steps = workload["retract_steps"]

        def rest_if_idle(self) -> None:
            """Nothing: `SglangRun.rows` rests in the iterations in which upstream's loop is idle."""

    return Parts(Scheduler).overriding(edition("sglang"))


class SglangRun(MiniSglangRun):
    """A workload of SGLang's on our core, one loop iteration after the other."""

    budget = "chunked_prefill_size"

    def __init__(self, workload: Workload, hooks: Hooks | None = None, parts: Parts | None = None) -> None:
        super().__init__(workload, parts_for(workload) if parts is None else parts, hooks)

    @property
    def scheduler(self) -> SglangScheduler:
        """The edition's scheduler."""
        scheduler = self.engine.scheduler
        assert isinstance(scheduler, SglangScheduler)
        return scheduler

    def rows_of(self, num_iterations: int) -> Iterator[Row]:
        """What the core holds after each of so many iterations."""
        for step in range(num_iterations):
            self._receive(step)
            self.scheduled.clear()
            if self.scheduler.is_idle:
                SglangScheduler.rest_if_idle(self.scheduler)
            else:
                self.engine.step()
            yield self._row(step, {})

    def _row(self, step: int, before: Mapping[int, int]) -> Row:
        scheduler, snapshot = self.scheduler, self.engine.snapshot()
        tree = scheduler.manager.pool.tree
        assert tree is not None
        chunked = [] if scheduler.chunked is None else [scheduler.chunked]
        return {
            "scheduled": [[self.uids[e.request_id], e.start, e.num_tokens] for e in self.scheduled],
            "waiting": [
                [self.uids[request.request_id], request.status == "preempted", self._output(request)]
                for request in scheduler.waiting
                if request not in chunked
            ],
            "running": [self._request(request) for request in scheduler.running],
            "chunked": [self._request(request) for request in chunked],
            "free_pages": list(snapshot.free_queue),
            "evictable": tree.num_evictable * self.page_size,
            "protected": sum(len(node.block_ids) for node in snapshot.tree if node.num_locks) * self.page_size,
            "new_token_ratio": round(scheduler.new_token_ratio, 6),
            "tree": nodes_of(snapshot),
        }

    def _request(self, request: Request) -> list[Any]:
        tree = self.scheduler.manager.pool.tree
        assert tree is not None
        return [
            self.uids[request.request_id],
            request.num_computed_tokens,
            tree.held_by(request).end * self.page_size,
            self._output(request),
            list(request.block_tables[0]),
        ]

    def _output(self, request: Request) -> list[int]:
        return request.token_ids[request.num_prompt_tokens :]


def upstream_rows(rows: Sequence[Row], size: int) -> list[Row]:
    """The reference driver's rows in the same form."""
    return [_upstream_row(row, size) for row in rows]


def _upstream_row(row: Row, size: int) -> Row:
    nodes: list[tuple[float, list[Any]]] = []

    def number(node: Mapping[str, Any]) -> int:
        return max(0, node["id"] - row["tree"]["id"] - NUM_SENTINELS)

    def pages(slots: Sequence[int]) -> list[int]:
        return [slot // size - FIRST_PAGE for slot in slots[::size]]

    def walk(node: Mapping[str, Any]) -> None:
        for child in node["children"]:
            of = [number(child), number(node), child["lock"], child["tokens"], pages(child["slots"])]
            nodes.append((child["time"], of))
            walk(child)

    walk(row["tree"])
    by_status: dict[str, list[list[Any]]] = {"waiting": [], "running": [], "chunked": [], "finished": []}
    for r in row["requests"]:
        if r["status"] == "waiting":
            by_status["waiting"].append([r["uid"], r["retracted"], r["output"]])
        else:
            by_status[r["status"]].append([r["uid"], r["committed"], r["tree_owned"], r["output"], pages(r["slots"])])
    return {
        "scheduled": [[one["uid"], one["start"], one["num_tokens"]] for one in row["scheduled"]],
        "waiting": by_status["waiting"],
        "running": by_status["running"],
        "chunked": by_status["chunked"],
        "free_pages": [page - FIRST_PAGE for page in row["free_pages"]],
        "evictable": row["evictable"],
        "protected": row["protected"],
        "new_token_ratio": row["new_token_ratio"],
        "tree": [of for _, of in sorted(nodes, key=lambda one: one[0])],
    }
