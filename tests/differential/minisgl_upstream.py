"""Serves mini-sglang's own scheduler to the tests, under an interpreter with torch and msgpack (and not labengine).

    cd tests && LABENGINE_MINI_SGLANG=CLONE PYTHON -m differential.minisgl_upstream EDITION

A workload as a JSON line in, the rows out. The finder's driver makes the scheduler, and drives it. For edition
mini-sglang+142, the page table is repointed after a prefill, as pull request 142 asks.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

from differential.finder_driver import driver
from differential.tree_workloads import NUM_STEPS

Row = dict[str, Any]

driving = driver("mini_sglang_scheduler")

PATCH = Path(__file__).with_name("minisgl_142.py")


class Run(driving.MiniSglangCore):  # type: ignore[name-defined]
    """One run of upstream's normal loop."""

    def __init__(self, workload: dict[str, Any]) -> None:
        self.workload = workload
        self.requests = {wanted["uid"]: wanted for wanted in workload["requests"]}
        self.replies: list[list[Any]] = []
        super().__init__(
            {
                "num_blocks": workload["num_pages"],
                "groups": [[workload["page_size"], None]],
                "max_num_seqs": workload["max_running_req"],
                "max_num_batched_tokens": workload["max_extend_tokens"],
            },
            (),
        )
        self.scheduler.eos_token_id = workload["eos"]
        self.scheduler.send_result = self._reply

    def _reply(self, reply: list[Any]) -> None:
        self.replies = [[one.uid, one.next_token, one.finished] for one in reply]

    def next_token(self, request: Any) -> int:
        """What a request samples next; 0 in the middle of its prefill."""
        wanted = self.requests[request.uid]
        output, place = wanted["output"], request.cached_len - len(wanted["prompt"])
        return int(output[place % len(output)]) if place >= 0 else 0

    def rows(self) -> list[Row]:
        """What upstream holds after each iteration, up to the last one or to its AssertionError."""
        found: list[Row] = []
        last = max(one["step"] for one in [*self.workload["requests"], *self.workload["aborts"]])
        for step in range(NUM_STEPS):
            self._receive(step)
            self.plan, self.replies = {}, []
            try:
                self.turn()
            except AssertionError:
                return found
            found.append(self._row())
            if step >= last and self.is_idle:
                break
        return found

    def _receive(self, step: int) -> None:
        for uid, wanted in self.requests.items():
            if wanted["step"] == step:
                ignore_eos = wanted.get("ignore_eos", False)
                self.queue(str(uid), wanted["prompt"], wanted["max_tokens"], ignore_eos=ignore_eos)
        for abort in self.workload["aborts"]:
            if abort["step"] == step:
                self.cancel(str(abort["uid"]))

    def _row(self) -> Row:
        scheduler = self.scheduler
        cache, places = scheduler.cache_manager.prefix_cache, scheduler.places
        running = sorted(scheduler.decode_manager.running_reqs, key=lambda request: places[request.uid])
        return {
            "scheduled": [[int(name), start, num_tokens] for name, (start, num_tokens) in self.plan.items()],
            "replies": sorted(self.replies),
            "requests": [
                *(self._waiting(pending) for pending in scheduler.prefill_manager.pending_list),
                *(self._held(request, "running") for request in running),
            ],
            "free_pages": self.free_pages(),
            "evictable": cache.evictable_size,
            "protected": cache.protected_size,
            "tree": self.nodes(),
        }

    def _waiting(self, pending: Any) -> list[Any]:
        return [pending.uid, "waiting"] if pending.chunked_req is None else self._held(pending.chunked_req, "chunked")

    def _held(self, req: Any, status: str) -> list[Any]:
        handle = [self.number_of(req.cache_handle.node), req.cache_handle.cached_len]
        return [req.uid, status, req.cached_len, handle, self.table_of(req)]


def main() -> None:
    """Answer until stdin ends; whatever upstream prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if sys.argv[1] == "mini-sglang+142":
        runpy.run_path(str(PATCH))
    for line in sys.stdin:
        print(json.dumps(Run(json.loads(line)).rows()), file=answers, flush=True)


if __name__ == "__main__":
    main()
