"""labengine's core in mini-sglang's terms: the same rows, and the first difference of two runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from labengine.config import EngineConfig, GroupSpec, SamplingParams
from labengine.core.kv_cache_group import NotGrantedError
from labengine.core.request import Request
from labengine.engine.engine import Engine
from labengine.engine.request_options import RequestOptions
from labengine.engine.simulated import SimulatedRunner
from labengine.events import RequestScheduled
from labengine.record.hooks import Hooks

Row = dict[str, Any]
Workload = Mapping[str, Any]


class MiniSglangRun:
    """A workload of mini-sglang's on our core, one loop iteration after the other."""

    def __init__(self, workload: Workload, edition: str, hooks: Hooks | None = None, runner: Any = None) -> None:
        self.workload, self.page_size = workload, workload["page_size"]
        self.hooks = Hooks(strict=True) if hooks is None else hooks
        self.scheduled: list[RequestScheduled] = []
        self.hooks.subscribe(self.scheduled.append, RequestScheduled)
        eos = workload.get("eos", -1)
        config = EngineConfig(
            num_blocks=workload["num_pages"],
            groups=(GroupSpec(block_size=self.page_size),),
            max_num_seqs=workload["max_running_req"],
            max_num_batched_tokens=workload["max_extend_tokens"],
            eos_token_ids=() if eos < 0 else (eos,),
        )
        self.engine = Engine(config, runner or SimulatedRunner(self.next_token), edition_parts(edition), self.hooks)
        self.uids: dict[int, int] = {}
        """uid by request id."""

    def next_token(self, request_id: int, position: int) -> int:
        """The workload's tokens, over and over."""
        wanted = self._wanted(self.uids[request_id])
        output = wanted.get("output") or [wanted["uid"] + 1]
        return int(output[(position - len(wanted["prompt"])) % len(output)])

    def rows(self) -> Iterator[Row]:
        """What the core holds after each iteration."""
        arrivals = [r["step"] for r in self.workload["requests"]] + [a["step"] for a in self.workload.get("aborts", ())]
        for step in range(400):
            self._receive(step)
            self.scheduled.clear()
            handles = {}
            before = {i: r.num_generated_tokens for i, r in self.engine.requests.items()}
            try:
                if not self.engine.scheduler.is_idle:
                    self.engine.step()
            except NotGrantedError:
                return
            yield self._row(step, before)
            if step >= max(arrivals) and self.engine.scheduler.is_idle:
                return

    def _receive(self, step: int) -> None:
        for wanted in self.workload["requests"]:
            if wanted["step"] == step:
                sampling = SamplingParams(wanted["max_tokens"], ignore_eos=wanted.get("ignore_eos", False))
                self.uids[len(self.uids)] = wanted["uid"]
                added = self.engine.add(wanted["prompt"], RequestOptions(sampling))
                assert self.uids[added] == wanted["uid"]
        for abort in self.workload.get("aborts", ()):
            for request_id, uid in self.uids.items():
                if abort["step"] == step and uid == abort["uid"]:
                    if self.engine.requests[request_id].finish_reason is None:
                        self.engine.abort(request_id)

    def _wanted(self, uid: int) -> Mapping[str, Any]:
        return next(r for r in self.workload["requests"] if r["uid"] == uid)

    def _row(self, step: int, before: Mapping[int, int]) -> Row:
        scheduler, snapshot = self.engine.scheduler, self.engine.snapshot()
        pool = scheduler.manager.pool
        tree = pool.tree
        assert tree is not None
        nodes = {node.node_id: node for node in snapshot.tree}
        return {
            "step": step,
            "scheduled": [[self.uids[e.request_id], e.start, e.num_tokens] for e in self.scheduled],
            "replies": sorted(
                [self.uids[i], r.token_ids[-1], r.finish_reason is not None]
                for i, r in self.engine.requests.items()
                if r.num_generated_tokens > before.get(i, 0)
            ),
            "requests": [self._request(request) for request in [*scheduler.waiting, *scheduler.running]],
            "free_slots": [block_id * self.page_size for block_id in snapshot.free_queue],
            "evictable": tree.num_evictable * self.page_size,
            "protected": sum(len(n.block_ids) for n in snapshot.tree if n.num_locks) * self.page_size,
            "tree": [
                [
                    node.node_id,
                    node.parent_id,
                    node.num_locks,
                    [token for i in node.block_ids for token in snapshot.blocks[i].token_ids],
                    list(node.block_ids),
                ]
                for node in snapshot.tree
            ],
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


def edition_parts(edition: str) -> Any:
    from labengine.core.editions import edition as edition_named

    return edition_named(edition)


def upstream_rows(rows: Sequence[Row], page_size: int) -> list[Row]:
    """mini-sglang's rows in the same form. Nodes are ordered by recency; on one path equal times count from the root."""
    return [_upstream_row(row, page_size) for row in rows]


def _upstream_row(row: Row, size: int) -> Row:
    nodes: list[tuple[int, int, list[Any]]] = []

    def walk(node: Mapping[str, Any], depth: int) -> None:
        for child in node["children"]:
            pages = [slot // size for slot in child["slots"][::size]]
            nodes.append((child["time"], depth, [child["id"], node["id"], child["ref"], child["tokens"], pages]))
            walk(child, depth + 1)

    walk(row["tree"], 0)
    return {
        "step": row["step"],
        "scheduled": [[one["uid"], one["start"], one["num_tokens"]] for one in row["scheduled"]],
        "replies": sorted(row["replies"]),
        "requests": [
            [r["uid"], "waiting"]
            if r["status"] == "waiting"
            else [r["uid"], r["status"], r["cached_len"], r["handle"], [slot // size for slot in r["slots"][::size]]]
            for r in row["requests"]
        ],
        "free_slots": row["free_slots"],
        "evictable": row["evictable"],
        "protected": row["protected"],
        "tree": [node for _, _, node in sorted(nodes, key=lambda one: one[:2])],
    }


def first_difference(expected: Sequence[Row], rows: Sequence[Row]) -> str | None:
    """Describe the first difference of two runs; None when they are equal after every step."""
    for number, (theirs, ours) in enumerate(zip_longest(expected, rows)):
        if theirs is None or ours is None:
            return f"upstream takes {len(expected)} steps, labengine {len(rows)}"
        for key in theirs:
            if theirs[key] != ours[key]:
                return f"step {number}: {key} is {theirs[key]} upstream, {ours[key]} in labengine"
    return None
