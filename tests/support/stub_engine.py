"""A driven engine for tests: the driver itself, on a small scheduler with vLLM's method names instead of vLLM.

    PYTHON stub_engine.py

It takes the place of `PYTHON driver.py vllm`; see `stub_python`. Nothing of labengine but the driver and the tap is
imported, so that a process starts in a tenth of a second.
"""

from __future__ import annotations

import importlib
import importlib.util
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
INSIDE = TESTS.parent / "labengine" / "driven" / "inside"


def stub_python(folder: Path) -> str:
    """Return the path of an interpreter that runs this file, whatever file it is asked to run."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\n[ "$2" ] && exec {sys.executable} {__file__}\nexec {sys.executable} "$@"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    return str(python)


def module_of(name: str, path: Path) -> Any:
    """Return a file as a module of another name."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    package = sys.modules["vllm"] = ModuleType("vllm")
    package.__version__ = "0.0"  # type: ignore[attr-defined]
    package.__path__ = []
    fake = module_of("vllm.fake", TESTS / "support" / "fake_vllm.py")


class StubCore:
    """The fake scheduler, with the methods of a driven engine; see labengine/driven/inside/vllm_scheduler.py."""

    def __init__(self, settings: Mapping[str, Any], token_at: Callable[[str, int], int]) -> None:
        self.scheduler = fake.FakeScheduler(settings["num_blocks"], settings["groups"][0][0])
        self.requests: dict[str, Any] = {}
        self.plan: dict[str, tuple[int, int]] = {}
        self.after_call: Callable[[str], object] = lambda call: None

    @property
    def is_idle(self) -> bool:
        return not self.scheduler.requests

    def add(self, name: str, prompt: Sequence[int], max_tokens: int, salt: str | None = None) -> None:
        self.requests[name] = fake.FakeRequest(name, prompt, max_tokens)
        self.scheduler.add_request(self.requests[name])
        self.after_call("add")

    def step(self) -> bool:
        plan = self.scheduler.schedule()
        self.plan = {
            name: (self.requests[name].num_computed_tokens - number, number)
            for name, number in plan.num_scheduled_tokens.items()
        }
        self.after_call("schedule")
        self.scheduler.update_from_output(plan, None)
        self.after_call("update")
        return bool(self.plan)

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


if __name__ == "__main__":
    module = ModuleType("vllm_scheduler")
    vars(module).update(VERSION="0.0", CORE=StubCore, __file__=__file__)
    sys.modules["vllm_scheduler"] = module
    sys.path.insert(0, str(INSIDE))
    importlib.import_module("driver").main("vllm")
