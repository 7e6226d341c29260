"""nano-vLLM's own scheduler and block manager without a model: requests are added, steps taken, tokens sampled.

LABENGINE_NANO_VLLM names a checkout of nano-vLLM, by default the current folder. It needs xxhash and numpy, but not
torch.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

CHECKOUT = Path(os.environ.get("LABENGINE_NANO_VLLM") or ".")


def _replace_module(name: str, **content: Any) -> None:
    """Put a module with this content where nano-vLLM imports one that needs torch."""
    module = ModuleType(name)
    vars(module).update(content)
    sys.modules[name] = module


for package in ("nanovllm", "nanovllm.engine"):
    _replace_module(package, __path__=[str(CHECKOUT.joinpath(*package.split(".")))])
_replace_module("nanovllm.config", Config=SimpleNamespace)
_replace_module("nanovllm.sampling_params", SamplingParams=SimpleNamespace)
scheduling = importlib.import_module("nanovllm.engine.scheduler")
sequences = importlib.import_module("nanovllm.engine.sequence")

VERSION = "checkout"


class NanoCore:
    """One scheduler with an empty cache.

    settings: num_blocks, groups [[block_size, None]], max_num_seqs, max_num_batched_tokens. token_at: returns what a
    request samples at a position.
    """

    def __init__(self, settings: Mapping[str, Any], token_at: Callable[[str, int], int]) -> None:
        size = settings["groups"][0][0]
        sequences.Sequence.block_size = size
        limits = {name: settings[name] for name in ("max_num_seqs", "max_num_batched_tokens")}
        config = SimpleNamespace(**limits, eos=-1, kvcache_block_size=size, num_kvcache_blocks=settings["num_blocks"])
        self.scheduler = scheduling.Scheduler(config)
        self.requests: dict[str, Any] = {}
        self.plan: dict[str, tuple[int, int]] = {}
        """Per request of the newest step: the first computed position, and the number of tokens."""
        self.after_call: Callable[[str], object] = lambda call: None
        """Called after each call of the scheduler: add, schedule, update."""
        self._token_at = token_at

    @property
    def is_idle(self) -> bool:
        """True if no request waits or runs."""
        return bool(self.scheduler.is_finished())

    def add(self, name: str, prompt: Sequence[int], max_tokens: int, salt: str | None = None) -> None:
        """Queue a request; nano-vLLM has no salts."""
        sampling = SimpleNamespace(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        self.requests[name] = sequences.Sequence(list(prompt), sampling)
        self.scheduler.add(self.requests[name])
        self.after_call("add")

    def step(self) -> bool:
        """Take a step. Returns False if nothing was scheduled."""
        if self.is_idle:
            return False
        batch, is_prefill = self.scheduler.schedule()
        names = {sequence.seq_id: name for name, sequence in self.requests.items()}
        self.plan = {
            names[one.seq_id]: (one.num_cached_tokens if is_prefill else len(one) - 1, one.num_scheduled_tokens)
            for one in batch
        }
        self.after_call("schedule")
        sampled = [self._token_at(name, sum(self.plan[name])) for name in (names[one.seq_id] for one in batch)]
        self.scheduler.postprocess(batch, sampled, is_prefill)
        self.after_call("update")
        return bool(batch)

    def length_of(self, name: str) -> int:
        """Return the number of a request's tokens."""
        return len(self.requests[name])

    def content_of(self, name: str) -> list[Any]:
        """Return a request's prompt after an empty salt."""
        sequence = self.requests[name]
        return [None, *sequence.token_ids[: sequence.num_prompt_tokens]]

    def state(self) -> dict[str, Any]:
        """Return status and table of the open requests, reference counts, the free queue and the cached blocks."""
        manager = self.scheduler.block_manager
        return {
            "requests": {
                name: [one.status.name.lower(), [list(one.block_table)]]
                for name, one in self.requests.items()
                if one.status.name != "FINISHED"
            },
            "ref_counts": [block.ref_count for block in manager.blocks],
            "free_queue": list(manager.free_block_ids),
            "cached": sorted(set(manager.hash_to_block_id.values())),
            "null_block": None,
        }


CORE = NanoCore
"""The engine that the finder drives."""

DECIDED_BY = {
    "RequestAdded": "Scheduler.add",
    "PrefixHit": "BlockManager.can_allocate",
    "BlockTouched": "BlockManager.allocate",
    "BlockAllocated": "BlockManager._allocate_block",
    "BlockEvicted": "BlockManager._allocate_block",
    "BlockCached": "BlockManager.hash_blocks",
    "BlockFreed": "BlockManager.deallocate",
    "RequestScheduled": "Scheduler.schedule",
    "RequestPreempted": "Scheduler.preempt",
    "TokensComputed": "Scheduler.postprocess",
    "RequestFinished": "Scheduler.postprocess",
}
"""The method that decides each kind of event."""
