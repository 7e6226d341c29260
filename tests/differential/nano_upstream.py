"""Drive upstream nano-vLLM's own scheduler and block manager, from a checkout of it, with next_token for a model.

Only upstream's pure modules run (scheduler, sequence, block manager); they need xxhash and numpy. What else they import
is stood in for, so that neither torch nor transformers is needed.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from workloads import Workload

COMMIT = "bb823b3e06983d71485a8e1f23715ebd87d98ef8"
"""The nano-vLLM commit that the editions nano-vllm and nano-vllm+243 are named for."""

VARIABLE = "LABENGINE_NANO_VLLM"
"""Environment variable that names the checkout."""

EDITIONS = ("nano-vllm", "nano-vllm+243")

Row = dict[str, Any]


@dataclass(frozen=True)
class Sampling:
    """Replaces upstream's SamplingParams."""

    max_tokens: int = 64
    temperature: float = 1.0
    ignore_eos: bool = True


class Upstream:
    """The modules of one checkout."""

    def __init__(self, checkout: Path) -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "nanovllm"]:
            del sys.modules[name]  # of another checkout
        for name in ("nanovllm", "nanovllm.engine"):
            package = ModuleType(name)
            package.__path__ = [str(checkout.joinpath(*name.split(".")))]
            sys.modules[name] = package
        _fake_module("nanovllm.config", Config=SimpleNamespace)
        _fake_module("nanovllm.sampling_params", SamplingParams=Sampling)
        self.scheduler = importlib.import_module("nanovllm.engine.scheduler")
        self.sequence = importlib.import_module("nanovllm.engine.sequence")
        self.block_manager = importlib.import_module("nanovllm.engine.block_manager")

    def run(self, workload: Workload, edition: str) -> list[Row]:
        """What upstream holds after each step; see `row` for the keys."""
        scheduler = self._scheduler(workload, late_merge=edition == "nano-vllm+243")
        sequences: dict[int, Any] = {}
        arrivals = sorted(enumerate(workload.requests), key=lambda arrival: arrival[1].step)
        rows = []
        clock = 0
        while arrivals or not scheduler.is_finished():
            while arrivals and arrivals[0][1].step <= clock:
                request_id, wanted = arrivals.pop(0)
                sequence = self.sequence.Sequence(list(wanted.prompt), Sampling(wanted.max_tokens))
                sequences[request_id] = sequence
                scheduler.add(sequence)
            if not scheduler.is_finished():
                scheduled = self._step(workload, scheduler, sequences)
                rows.append(self._row(clock, scheduled, sequences, scheduler.block_manager))
            clock += 1
        return rows

    def _row(self, *of: Any) -> Row:
        return row(*of)

    def _scheduler(self, workload: Workload, *, late_merge: bool) -> Any:
        config = SimpleNamespace(
            max_num_seqs=workload.max_num_seqs,
            max_num_batched_tokens=workload.max_num_batched_tokens,
            eos=-1,
            kvcache_block_size=workload.block_size,
            num_kvcache_blocks=workload.num_blocks,
        )
        self.sequence.Sequence.block_size = workload.block_size
        scheduler = self.scheduler.Scheduler(config)
        if late_merge:
            manager = scheduler.block_manager
            manager.hash_blocks = lambda sequence: hash_and_merge_blocks(manager, sequence)
        return scheduler

    def _step(self, workload: Workload, scheduler: Any, sequences: dict[int, Any]) -> list[list[int]]:
        ids = {sequence.seq_id: request_id for request_id, sequence in sequences.items()}
        batch, is_prefill = scheduler.schedule()
        scheduled = [[ids[sequence.seq_id], sequence.num_scheduled_tokens] for sequence in batch]
        tokens = [workload.next_token(ids[sequence.seq_id], len(sequence)) for sequence in batch]
        scheduler.postprocess(batch, tokens, is_prefill)
        return scheduled


def row(step: int, scheduled: list[list[int]], sequences: dict[int, Any], manager: Any) -> Row:
    """Integers only. requests: {id: [num_tokens, num_computed_tokens, block table]}; map: [own tokens, block id]."""
    return {
        "step": step,
        "scheduled": scheduled,
        "requests": {
            str(request_id): [len(sequence), sequence.num_cached_tokens, list(sequence.block_table)]
            for request_id, sequence in sequences.items()
        },
        "ref_counts": [block.ref_count for block in manager.blocks],
        "free_queue": list(manager.free_block_ids),
        "map": sorted([list(manager.blocks[i].token_ids), i] for i in manager.hash_to_block_id.values()),
    }


def hash_and_merge_blocks(manager: Any, sequence: Any) -> None:
    """Upstream's hash_blocks with the late merge that pull request 243 describes.

    A block just filled, whose content a live block holds already, gives its place in the table to that block and is
    freed unless another request holds it.
    """
    size = manager.block_size
    first = sequence.num_cached_tokens // size
    last = (sequence.num_cached_tokens + sequence.num_scheduled_tokens) // size
    for index in range(first, last):
        parent = manager.blocks[sequence.block_table[index - 1]].hash if index else -1
        tokens = sequence.block(index)
        block_hash = manager.compute_hash(tokens, parent)
        block = manager.blocks[sequence.block_table[index]]
        twin = manager.blocks[manager.hash_to_block_id.get(block_hash, block.block_id)]
        if twin is block or twin.block_id not in manager.used_block_ids or twin.token_ids != tokens:
            block.update(block_hash, tokens)
            manager.hash_to_block_id[block_hash] = block.block_id
            continue
        twin.ref_count += 1
        sequence.block_table[index] = twin.block_id
        block.ref_count -= 1
        if block.ref_count == 0:
            manager._deallocate_block(block.block_id)


def find_checkout(variable: str = VARIABLE, wanted: str = COMMIT) -> Path | None:
    """The checkout that the environment names; None when it names none. ValueError when it is not the right commit."""
    named = os.environ.get(variable)
    if not named:
        return None
    checkout = Path(named)
    git = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    if commit != wanted:
        raise ValueError(
            f"{variable} must name a checkout of nano-vLLM at {wanted}; {checkout} is at {commit or 'none'}"
        )
    return checkout


def _fake_module(name: str, **names: Any) -> None:
    module = ModuleType(name)
    for key, value in names.items():
        setattr(module, key, value)
    sys.modules[name] = module
