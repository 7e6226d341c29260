"""labengine's core for cases.py, without listeners; LABENGINE_EDITION selects the edition."""

from __future__ import annotations

import os
from typing import Any

from labengine.config import EngineConfig, GroupSpec, SamplingParams
from labengine.core.block_pool import BlockPool
from labengine.core.editions import edition
from labengine.core.journal import Journal
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.request import Request
from labengine.core.scheduler import Scheduler
from labengine.core.step_plan import StepPlan
from labengine.record.hooks import Hooks

SAMPLING = SamplingParams(max_tokens=100_000, ignore_eos=True)


class Core:
    """The core as an engine uses it: the undo journal records everything, and is emptied at the end of each step."""

    can_look_up = has_windows = True

    def __init__(self) -> None:
        self.parts = edition(os.environ.get("LABENGINE_EDITION", "labengine"))
        self.name = f"labengine, edition {self.parts.name}"

    def pool(self, num_blocks: int) -> BlockPool:
        return self.parts.block_pool(num_blocks, self.parts.free_queue(num_blocks), Hooks(), Journal())

    def take(self, pool: BlockPool, num_blocks: int) -> list[int]:
        return pool.take(num_blocks)

    def give_back(self, pool: BlockPool, block_ids: list[int]) -> None:
        pool.release(block_ids[::-1])

    def end_step(self, pool: BlockPool) -> None:
        pool._journal.commit()

    def manager(self, num_blocks: int, block_size: int, windows: tuple[int, ...]) -> KVCacheManager:
        groups = (GroupSpec(block_size), *(GroupSpec(block_size, "sliding_window", window) for window in windows))
        config = EngineConfig(num_blocks, groups, 256, 1_000_000)
        return self.parts.assemble(config, Hooks(), Journal()).manager

    def request(self, manager: KVCacheManager, tokens: list[int]) -> Request:
        request = Request(0, list(tokens), SAMPLING, 0, len(manager.groups))
        manager.extend_hashes(request, request.num_tokens)
        return request

    def look_up(self, manager: KVCacheManager, request: Request) -> int:
        return manager.find_prefix(request).num_tokens

    def admit(self, manager: KVCacheManager, request: Request) -> None:
        manager._journal.open()
        assert manager.admit(request, manager.find_prefix(request), request.num_tokens)
        self._book(manager, request, request.num_tokens)

    def decode(self, manager: KVCacheManager, request: Request, token: int) -> None:
        manager._journal.open()
        request.token_ids.append(token)
        assert manager.allocate(request, request.num_computed_tokens + 1)
        self._book(manager, request, request.num_computed_tokens + 1)

    def _book(self, manager: KVCacheManager, request: Request, num_tokens: int) -> None:
        manager.register(request, num_tokens, "computed")
        request.num_computed_tokens = num_tokens
        manager._journal.commit()

    def free(self, manager: KVCacheManager, request: Request) -> None:
        manager._journal.open()
        manager.free(request, "finished")
        manager._journal.commit()

    def scheduler(self, num_requests: int, prompt_len: int, num_blocks: int, block_size: int) -> Scheduler:
        config = EngineConfig(num_blocks, (GroupSpec(block_size),), num_requests, max(8192, num_requests * prompt_len))
        return self.parts.assemble(config, Hooks(), Journal())

    def add(self, scheduler: Scheduler, tokens: list[int]) -> None:
        scheduler.add(Request(len(scheduler.requests), list(tokens), SAMPLING, 0, 1))

    def schedule(self, scheduler: Scheduler) -> StepPlan:
        scheduler._journal.open()
        return scheduler.schedule()

    def output(self, scheduler: Scheduler, plan: StepPlan) -> list[int]:
        return [100 + number % 1000 for number in range(len(plan.sampling))]

    def update(self, scheduler: Scheduler, plan: StepPlan, output: list[int]) -> Any:
        finished = scheduler.update(plan, output)
        scheduler._journal.commit()
        return finished
