"""nano-vLLM's core (bb823b3) for cases.py, from the checkout in LABENGINE_NANO_VLLM. It hashes while it looks up."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from labengine.config import SamplingParams

ROOT = Path(os.environ["LABENGINE_NANO_VLLM"])

for name in ("nanovllm", "nanovllm.engine"):  # bare packages, as upstream's packages import torch
    package = ModuleType(name)
    package.__path__ = [str(ROOT.joinpath(*name.split(".")))]
    sys.modules[name] = package
for name, attribute, value in (
    ("config", "Config", SimpleNamespace),
    ("sampling_params", "SamplingParams", SamplingParams),
):
    module = ModuleType(f"nanovllm.{name}")
    setattr(module, attribute, value)
    sys.modules[module.__name__] = module

scheduling = importlib.import_module("nanovllm.engine.scheduler")
blocks = importlib.import_module("nanovllm.engine.block_manager")
sequences = importlib.import_module("nanovllm.engine.sequence")

SAMPLING = SamplingParams(max_tokens=100_000, ignore_eos=True)


class Core:
    """One group with full attention; requests do not keep hashes."""

    name = "nano-vLLM bb823b3"
    can_look_up, has_windows = True, False

    def pool(self, num_blocks: int) -> Any:
        return blocks.BlockManager(num_blocks, 16)

    def take(self, pool: Any, num_blocks: int) -> list[int]:
        return [pool._allocate_block() for _ in range(num_blocks)]

    def give_back(self, pool: Any, block_ids: list[int]) -> None:
        for block_id in reversed(block_ids):
            pool.blocks[block_id].ref_count -= 1
            pool._deallocate_block(block_id)

    def end_step(self, pool: Any) -> None:
        pass

    def manager(self, num_blocks: int, block_size: int, windows: tuple[int, ...]) -> Any:
        sequences.Sequence.block_size = block_size
        return blocks.BlockManager(num_blocks, block_size)

    def request(self, manager: Any, tokens: list[int]) -> Any:
        return sequences.Sequence(tokens, SAMPLING)

    def look_up(self, manager: Any, request: Any) -> int:
        return int(manager.can_allocate(request))

    def admit(self, manager: Any, request: Any) -> None:
        manager.allocate(request, manager.can_allocate(request))
        request.num_scheduled_tokens = request.num_tokens - request.num_cached_tokens
        self._book(manager, request)

    def decode(self, manager: Any, request: Any, token: int) -> None:
        request.append_token(token)
        request.num_scheduled_tokens = 1
        assert manager.can_append(request)
        manager.may_append(request)
        self._book(manager, request)

    def _book(self, manager: Any, request: Any) -> None:
        manager.hash_blocks(request)
        request.num_cached_tokens += request.num_scheduled_tokens

    def free(self, manager: Any, request: Any) -> None:
        manager.deallocate(request)

    def scheduler(self, num_requests: int, prompt_len: int, num_blocks: int, block_size: int) -> Any:
        sequences.Sequence.block_size = block_size
        config = SimpleNamespace(
            max_num_seqs=num_requests,
            max_num_batched_tokens=max(8192, num_requests * prompt_len),
            eos=-1,
            kvcache_block_size=block_size,
            num_kvcache_blocks=num_blocks,
        )
        return scheduling.Scheduler(config)

    def add(self, scheduler: Any, tokens: list[int]) -> None:
        scheduler.add(sequences.Sequence(tokens, SAMPLING))

    def schedule(self, scheduler: Any) -> Any:
        return scheduler.schedule()

    def output(self, scheduler: Any, plan: Any) -> list[int]:
        return [100 + number % 1000 for number in range(len(plan[0]))]

    def update(self, scheduler: Any, plan: Any, output: list[int]) -> None:
        scheduler.postprocess(plan[0], output, plan[1])
