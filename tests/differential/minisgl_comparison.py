"""labengine's core in mini-sglang's terms: the same rows as minisgl_upstream makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from differential.tree_workloads import NUM_STEPS, Workload
from labengine.config import EngineConfig, GroupSpec, SamplingParams
from labengine.core.kv_cache_group import NotGrantedError
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.engine.engine import Engine
from labengine.engine.request_options import RequestOptions
from labengine.engine.simulated import SimulatedRunner
from labengine.events import RequestScheduled
from labengine.record.hooks import Hooks
from labengine.record.snapshot import Snapshot

UNCHUNKED = 16384
"""A step's budget that no prompt here exceeds."""

Row = dict[str, Any]


class MiniSglangRun:
    """A workload of mini-sglang's on our core, one loop iteration after the other."""

    budget = "max_extend_tokens"
    """The workload's name for the tokens of a step."""

    def __init__(self, workload: Workload, parts: Parts, hooks: Hooks | None = None) -> None:
        self.workload, self.page_size = workload, workload["page_size"]
        self.hooks = Hooks(strict=True) if hooks is None else hooks
        self.scheduled: list[RequestScheduled] = []
        self.hooks.subscribe(self.scheduled.append, RequestScheduled)
        self.engine = Engine(self._config(), SimulatedRunner(self.next_token), parts, self.hooks)
        self.uids: dict[int, int] = {}
        """uid by request id."""

    def _config(self) -> EngineConfig:
        workload = self.workload
        eos = workload["eos"]
        return EngineConfig(
            num_blocks=workload["num_pages"],
            groups=(GroupSpec(block_size=self.page_size),),
            max_num_seqs=workload["max_running_req"],
            max_num_batched_tokens=workload[self.budget] or UNCHUNKED,
            eos_token_ids=() if eos < 0 else (eos,),
        )

    def next_token(self, request_id: int, position: int) -> int:
        """The workload's tokens, over and over."""
        wanted = self._wanted(self.uids[request_id])
        output = wanted["output"]
        return int(output[(position - len(wanted["prompt"])) % len(output)])

    def rows(self) -> Iterator[Row]:
        """What the core holds after each iteration."""
        last = max(one["step"] for one in [*self.workload["requests"], *self.workload["aborts"]])
        for step in range(NUM_STEPS):
            self._receive(step)
            self.scheduled.clear()
            before = {i: r.num_generated_tokens for i, r in self.engine.requests.items()}
            try:
                self._iterate()
            except NotGrantedError:
                return
            yield self._row(before)
            if step >= last and self.engine.scheduler.is_idle:
                return

    def _iterate(self) -> None:
        if not self.engine.scheduler.is_idle:
            self.engine.step()

    def _receive(self, step: int) -> None:
        for wanted in self.workload["requests"]:
            if wanted["step"] == step:
                sampling = SamplingParams(wanted["max_tokens"], ignore_eos=wanted.get("ignore_eos", False))
                self.uids[len(self.uids)] = wanted["uid"]
                added = self.engine.add(wanted["prompt"], RequestOptions(sampling))
                assert self.uids[added] == wanted["uid"]
        for abort in self.workload["aborts"]:
            if abort["step"] == step and abort["uid"] in self.uids.values():
                self.engine.abort(next(i for i, uid in self.uids.items() if uid == abort["uid"]))

    def _wanted(self, uid: int) -> Mapping[str, Any]:
        return next(r for r in self.workload["requests"] if r["uid"] == uid)

    def _row(self, before: Mapping[int, int]) -> Row:
        scheduler, snapshot = self.engine.scheduler, self.engine.snapshot()
        pool = scheduler.manager.pool
        tree = pool.tree
        assert tree is not None
        return {
            "scheduled": [[self.uids[e.request_id], e.start, e.num_tokens] for e in self.scheduled],
            "replies": sorted(
                [self.uids[i], r.token_ids[-1], r.finish_reason is not None]
                for i, r in self.engine.requests.items()
                if r.num_generated_tokens > before.get(i, 0)
            ),
            "requests": [self._request(request) for request in [*scheduler.waiting, *scheduler.running]],
            "free_pages": list(snapshot.free_queue),
            "evictable": tree.num_evictable * self.page_size,
            "protected": sum(len(n.block_ids) for n in snapshot.tree if n.num_locks) * self.page_size,
            "tree": nodes_of(snapshot),
        }

    def _request(self, request: Request) -> list[Any]:
        tree = self.engine.scheduler.manager.pool.tree
        assert tree is not None
        if not request.has_blocks:
            return [self.uids[request.request_id], "waiting"]
        node = tree.held_by(request)
        status = "running" if request in self.engine.scheduler.running else "chunked"
        return [
            self.uids[request.request_id],
            status,
            request.num_computed_tokens,
            [node.node_id, node.end * self.page_size],
            list(request.block_tables[0]),
        ]


def nodes_of(snapshot: Snapshot) -> list[list[Any]]:
    """The tree's nodes, the oldest first: id, parent, locks, tokens, blocks."""
    return [
        [
            node.node_id,
            node.parent_id,
            node.num_locks,
            [token for i in node.block_ids for token in snapshot.blocks[i].token_ids],
            list(node.block_ids),
        ]
        for node in snapshot.tree
    ]
