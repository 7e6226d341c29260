"""Serves mini-sglang's own scheduler to the tests, under an interpreter with torch and msgpack (and not labengine).

    cd tests && PYTHON -m differential.minisgl_upstream CLONE

A JSON line {"workload": ..., "edition": ...} in, the rows out. mini-sglang decodes a set of requests in the order of
their addresses, which differs from run to run; here they are sorted by admission. For edition mini-sglang+142, the
page table is repointed after a prefill, as pull request 142 asks.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from differential.minisgl_scenarios import StandInEngine, import_upstream
from differential.tree_workloads import NUM_STEPS

Row = dict[str, Any]


class Run:
    """One run of upstream's normal loop."""

    def __init__(self, workload: dict[str, Any], edition: str) -> None:
        self.workload, self.page_size, self.step = workload, workload["page_size"], 0
        self.requests = {wanted["uid"]: wanted for wanted in workload["requests"]}
        self.order: dict[Any, int] = {}
        """Place of each request in the order of admission."""
        self.scheduled: list[list[int]] = []
        self.replies: list[list[Any]] = []
        self.misread: set[int] = set()
        self._batch: dict[int, Any] = {}
        self._num_sampled = dict.fromkeys(self.requests, 0)
        scheduling = importlib.import_module("minisgl.scheduler.scheduler")
        scheduling.load_tokenizer = lambda _: SimpleNamespace(eos_token_id=workload["eos"])
        StandInEngine.run = self
        self.scheduler: Any = self._class(scheduling.Scheduler)(self._config())
        if edition == "mini-sglang+142":
            self._repoint(self.scheduler.cache_manager)

    def _config(self) -> SimpleNamespace:
        workload = self.workload
        num_pages = workload["num_pages"]
        return SimpleNamespace(
            page_size=self.page_size,
            num_pages=num_pages,
            max_running_req=workload["max_running_req"],
            max_seq_len=num_pages * self.page_size,
            max_extend_tokens=workload["max_extend_tokens"],
            cache_type="radix",
            model_path="",
            offline_mode=True,
            tp_info=SimpleNamespace(is_primary=lambda: True, size=1, rank=0),
        )

    def _class(self, base: Any) -> Any:
        run = self

        class Scheduler(base):  # type: ignore[misc]
            def offline_receive_msg(self, blocking: bool = False) -> list[Any]:
                return run._messages()

            def offline_send_result(self, reply: list[Any]) -> None:
                run.replies = [[one.uid, one.next_token, one.finished] for one in reply]

            def _prepare_batch(self, batch: Any) -> Any:
                if batch.is_decode:
                    batch.reqs.sort(key=run.order.__getitem__)
                run._note(batch.reqs)
                return super()._prepare_batch(batch)

        return Scheduler

    @staticmethod
    def _repoint(manager: Any) -> None:
        """Repoint a request's row after its insertion. Frees keep views of the row, so they are copied before."""
        cache = manager.cache_req

        def cache_and_repoint(req: Any, *, finished: bool) -> None:
            free = manager._free
            manager._free = lambda slots: free(slots.clone())
            cache(req, finished=finished)
            manager._free = free
            handle = req.cache_handle
            if handle.cached_len and not finished:
                manager.page_table[req.table_idx, : handle.cached_len] = handle.get_matched_indices()

        manager.cache_req = cache_and_repoint

    def next_token(self, uid: int) -> int:
        """Return what a request samples next; 0 in the middle of its prefill."""
        if type(self._batch[uid]).__name__ == "ChunkedReq":
            return 0
        output = self.requests[uid]["output"]
        self._num_sampled[uid] += 1
        return int(output[(self._num_sampled[uid] - 1) % len(output)])

    def rows(self) -> list[Row]:
        """What upstream holds after each iteration, up to the last one or to its AssertionError."""
        found: list[Row] = []
        last = max(one["step"] for one in [*self.workload["requests"], *self.workload["aborts"]])
        for self.step in range(NUM_STEPS):
            self.scheduled, self.replies = [], []
            try:
                self.scheduler.normal_loop()
            except AssertionError:
                return found
            found.append(self._row())
            is_busy = self.scheduler.prefill_manager.runnable or self.scheduler.decode_manager.runnable
            if self.step >= last and not is_busy:
                break
        return found

    def _messages(self) -> list[Any]:
        message, core = (importlib.import_module(f"minisgl.{name}") for name in ("message", "core"))
        added = [
            message.UserMsg(
                uid=wanted["uid"],
                input_ids=torch.tensor(wanted["prompt"], dtype=torch.int32),
                sampling_params=core.SamplingParams(
                    max_tokens=wanted["max_tokens"], ignore_eos=wanted.get("ignore_eos", False)
                ),
            )
            for wanted in self.workload["requests"]
            if wanted["step"] == self.step
        ]
        aborted = [abort["uid"] for abort in self.workload["aborts"] if abort["step"] == self.step]
        return [*added, *(message.AbortBackendMsg(uid=uid) for uid in aborted)]

    def _note(self, batch: list[Any]) -> None:
        self._batch = {req.uid: req for req in batch}
        for req in batch:
            self.order.setdefault(req, len(self.order))
        self.scheduled = [[req.uid, req.cached_len, req.extend_len] for req in batch]

    def _row(self) -> Row:
        scheduler = self.scheduler
        cache = scheduler.cache_manager.prefix_cache
        return {
            "scheduled": self.scheduled,
            "replies": sorted(self.replies),
            "requests": [
                *(self._waiting(pending) for pending in scheduler.prefill_manager.pending_list),
                *(self._held(r, "running") for r in sorted(scheduler.decode_manager.running_reqs, key=self.order.get)),
            ],
            "free_pages": [slot // self.page_size for slot in scheduler.cache_manager.free_slots.tolist()],
            "evictable": cache.evictable_size,
            "protected": cache.protected_size,
            "tree": self._tree(cache.root_node),
        }

    def _waiting(self, pending: Any) -> list[Any]:
        chunked = pending.chunked_req
        return [pending.uid, "waiting"] if chunked is None else self._held(chunked, "chunked", pending.uid)

    def _held(self, req: Any, status: str, uid: int | None = None) -> list[Any]:
        slots = self.scheduler.engine.page_table[req.table_idx, : req.cached_len].tolist()
        handle = [self._number(req.cache_handle.node), req.cache_handle.cached_len]
        return [req.uid if uid is None else uid, status, req.cached_len, handle, self._pages(slots)]

    def _tree(self, root: Any) -> list[list[Any]]:
        """The nodes, the oldest first; on one path, equal times count from the root."""
        found: list[tuple[int, int, list[Any]]] = []
        nodes = [(child, 1) for child in root.children.values()]
        for node, depth in nodes:
            nodes += [(child, depth + 1) for child in node.children.values()]
            number, parent = self._number(node), self._number(node.parent)
            content = node._key.tolist(), self._pages(node._value.tolist())
            found.append((node.timestamp, depth, [number, parent, node.ref_count, *content]))
        return [node for _, _, node in sorted(found, key=lambda one: one[:2])]

    def _number(self, node: Any) -> int:
        return int(node.uuid - self.scheduler.cache_manager.prefix_cache.root_node.uuid)

    def _pages(self, slots: list[int]) -> list[int]:
        return [slot // self.page_size for slot in slots[:: self.page_size]]


def main() -> None:
    """Answer until stdin ends; whatever upstream prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    import_upstream(Path(sys.argv[1]) / "python")
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(Run(asked["workload"], asked["edition"]).rows()), file=answers, flush=True)


if __name__ == "__main__":
    main()
