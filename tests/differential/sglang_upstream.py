"""Serves SGLang 0.5.23's own scheduler and tree to the tests, under an interpreter that has what it imports.

    cd tests && LABENGINE_SGLANG=WHEEL PYTHON -m differential.sglang_upstream

WHEEL: the folder of the unpacked wheel. A workload as a JSON line in, the rows out. The finder's driver makes the
scheduler, and drives it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from differential.finder_driver import driver
from differential.tree_workloads import NUM_STEPS

Row = dict[str, Any]

driving = driver("sglang_scheduler")

VERSION = "0.5.23"


class Run(driving.SglangCore):  # type: ignore[name-defined]
    """One run of upstream's normal loop."""

    def __init__(self, workload: dict[str, Any]) -> None:
        self.workload = workload
        self._outputs = {str(wanted["uid"]): wanted["output"] for wanted in workload["requests"]}
        super().__init__(
            {
                "num_blocks": workload["num_pages"],
                "groups": [[workload["page_size"], None]],
                "max_num_seqs": workload["max_running_req"],
                "max_num_batched_tokens": workload["chunked_prefill_size"],
                "new_token_ratio": workload["new_token_ratio"],
                "retract_steps": workload["retract_steps"],
            },
            (),
        )

    def rows(self) -> list[Row]:
        """What upstream holds after each iteration."""
        found: list[Row] = []
        last = max(one["step"] for one in [*self.workload["requests"], *self.workload["aborts"]])
        for step in range(NUM_STEPS):
            self._receive(step)
            self.plan = {}
            self.turn()
            found.append(self._row())
            if step >= last and self.is_idle:
                break
        return found

    def _receive(self, step: int) -> None:
        eos = self.workload["eos"]
        for wanted in self.workload["requests"]:
            if wanted["step"] == step:
                options = {"ignore_eos": wanted.get("ignore_eos", False), "eos": {eos} if eos >= 0 else None}
                self.queue(str(wanted["uid"]), wanted["prompt"], wanted["max_tokens"], **options)
        for abort in self.workload["aborts"]:
            if abort["step"] == step:
                self.cancel(str(abort["uid"]))

    def next_token(self, name: str, position: int) -> int:
        """The workload's tokens, over and over."""
        output, place = self._outputs[name], position - len(self._prompts[name])
        return int(output[place % len(output)]) if place >= 0 else 0

    def _row(self) -> Row:
        s = self.scheduler
        return {
            "scheduled": [[int(name), start, num_tokens] for name, (start, num_tokens) in self.plan.items()],
            "waiting": [[int(req.rid), req.is_retracted, len(req.output_ids)] for req in s.waiting_queue],
            "chunked": [] if s.chunked_req is None else [self._request(s.chunked_req)],
            "running": [self._request(req) for req in self.running()],
            "free_pages": self.free_pages(),
            "evictable": s.tree_cache.evictable_size(),
            "protected": s.tree_cache.protected_size(),
            "new_token_ratio": round(s.new_token_ratio_tracker.current, 6),
            "tree": self.nodes(),
        }

    def _request(self, req: Any) -> list[Any]:
        kv = req.kv
        numbers = kv.kv_committed_len, kv.cache_protected_len, len(req.output_ids)
        return [int(req.rid), *numbers, self.table_of(req)]


def main() -> None:
    """Answer until stdin ends; whatever upstream prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if driving.VERSION != VERSION:
        raise ValueError(f"SGLang {VERSION} is compared, but LABENGINE_SGLANG has {driving.VERSION}")
    for line in sys.stdin:
        print(json.dumps(Run(json.loads(line)).rows()), file=answers, flush=True)


if __name__ == "__main__":
    main()
