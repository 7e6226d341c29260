"""A driven engine for tests: a small scheduler with vLLM's method names, where vLLM would be.

Nothing of labengine but the driver and the tap is imported, so that a process starts in a fraction of a second. The
fake's global STEP is the number of the step in progress, for a patch that acts in one step alone.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

package = sys.modules["vllm"] = ModuleType("vllm")
package.__dict__.update(__version__="0.0", __path__=[])
spec = importlib.util.spec_from_file_location("vllm.fake", os.environ["STUB_OF_VLLM"])
assert spec is not None and spec.loader is not None
fake: Any = importlib.util.module_from_spec(spec)
sys.modules["vllm.fake"] = fake
spec.loader.exec_module(fake)

VERSION = "0.0"


class StubCore:
    """The fake scheduler, with the methods of a driven engine; see labengine/driven/inside/vllm_scheduler.py."""

    def __init__(self, settings: Mapping[str, Any], token_at: Callable[[str, int], int]) -> None:
        self.scheduler = fake.FakeScheduler(settings["num_blocks"], settings["groups"][0][0])
        self.requests: dict[str, Any] = {}
        self.plan: dict[str, tuple[int, int]] = {}
        self.after_call: Callable[[str], object] = lambda call: None
        self.num_steps = 0

    @property
    def is_idle(self) -> bool:
        return not self.scheduler.requests

    def add(self, name: str, prompt: Sequence[int], max_tokens: int, salt: str | None = None) -> None:
        self.requests[name] = fake.FakeRequest(name, prompt, max_tokens)
        self.scheduler.add_request(self.requests[name])
        self.after_call("add")

    def step(self) -> bool:
        self.num_steps += 1
        fake.STEP = self.num_steps
        plan = self.scheduler.schedule()
        self.plan = {
            name: (self.requests[name].num_computed_tokens - number, number)
            for name, number in plan.num_scheduled_tokens.items()
        }
        self.after_call("schedule")
        self.scheduler.update_from_output(plan, None)
        self.after_call("update")
        return bool(self.plan)

    def draft(self, drafts: Mapping[str, list[int]]) -> None:
        told = SimpleNamespace(req_ids=list(drafts), draft_token_ids=list(drafts.values()))
        self.scheduler.update_draft_token_ids(told)
        self.after_call("draft")

    def abort(self, name: str) -> None:
        if name in self.scheduler.requests:
            self.scheduler.finish_requests(name, fake.Status.FINISHED_ABORTED)
            self.after_call("abort")

    def reset(self) -> None:
        self.scheduler.reset_prefix_cache()
        self.after_call("reset")

    def content_of(self, name: str) -> list[Any]:
        request = self.requests[name]
        return [None, *request._all_token_ids[: request.num_prompt_tokens]]

    def state(self) -> dict[str, Any]:
        manager = self.scheduler.kv_cache_manager
        pool, tables = manager.block_pool, manager.group.req_to_blocks
        return {
            "requests": {
                name: [one.status.name.lower(), [[block.block_id for block in tables.get(name, ())]]]
                for name, one in self.scheduler.requests.items()
            },
            "ref_counts": [0, *(block.ref_cnt for block in pool.blocks[1:])],
            "free_queue": [block.block_id for block in pool.free_block_queue],
            "cached": [block.block_id for block in pool.blocks if block.block_hash is not None],
        }


CORE = StubCore
