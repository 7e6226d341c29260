"""Scenarios about vLLM, run on vLLM's own scheduler and KV cache, without a model. Runs where vLLM is installed.

    PYTHON vllm_scenarios.py      prints release, part and rows of every scenario as JSON

Rows are named "as it is" for the release, and else for what was changed.

The order before a fix, where no release at hand has it, is put back by a method that is written here.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
sys.path.append(str(Path(__file__).parents[2] / "labengine" / "finder" / "driven"))
sys.path.append(str(Path(__file__).parents[1]))

from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_coordinator import KVCacheCoordinator
from vllm.v1.core.single_type_kv_cache_manager import (
    FullAttentionManager,
    MambaManager,
    SingleTypeKVCacheManager,
)
from vllm.v1.request import Request
from vllm_scheduler import VERSION, VllmCore

from differential.vllm_upstream_scheduler import run_scheduler

Rows = dict[str, dict[str, int]]

AS_IT_IS = "as it is"

FULL: tuple[tuple[int, int | None], ...] = ((4, None),)
"""One group of full attention, in blocks of four."""


class Engine:
    """One scheduler without a connector. found: tokens that each request found at its first step."""

    def __init__(
        self,
        num_blocks: int,
        groups: Sequence[tuple[int, int | None]] = FULL,
        **limits: Any,
    ) -> None:
        hash_block_size = min(size for size, _ in groups)
        settings = {
            "num_blocks": num_blocks,
            "groups": groups,
            "hash_block_size": hash_block_size,
            "max_num_seqs": 256,
            "max_num_batched_tokens": 8192,
            "watermark": 0.0,
            "long_prefill_token_threshold": 0,
            "retention_interval": None,
            "is_async": False,
            "transfers": None,
        } | limits
        self.core = VllmCore(settings, range(20_000, 30_000))
        self._hasher = kv_cache_utils.get_request_block_hasher(hash_block_size, sha256)
        self.found: list[int] = []
        self.num_computed = 0

    def add(self, prompt: Iterable[int], max_tokens: int = 1, **keys: Any) -> None:
        """Queue a request. keys: cache_salt, lora_request, priority."""
        name = str(len(self.core.requests))
        self.core.requests[name] = request = Request(
            request_id=name,
            prompt_token_ids=list(prompt),
            sampling_params=SamplingParams(max_tokens=max_tokens, ignore_eos=True, temperature=0.0),
            pooling_params=None,
            block_hasher=self._hasher,
            **keys,
        )
        self.core.scheduler.add_request(request)

    def step(self) -> list[str]:
        """Take a step; return the names of the requests that were in it."""
        known = set(range(len(self.found)))
        self.core.step()
        for name, (start, num_tokens) in self.core.plan.items():
            if int(name) not in known:
                self.found.append(start)
            self.num_computed += num_tokens
        return list(self.core.plan)

    def generate(self, *prompts: Iterable[int]) -> None:
        """Run prompts to their first tokens."""
        for prompt in prompts:
            self.add(prompt)
        while not self.core.is_idle:
            self.step()


def adapter_name() -> Rows:
    """Issue 30931: the same tokens with two adapters of one name, from two folders."""
    engine = Engine(12)
    for number, folder in ((1, "/one"), (2, "/two")):
        engine.add(range(1, 10), lora_request=LoRARequest("sql", number, folder))
        engine.step()
    return {AS_IT_IS: {"tokens that B finds": engine.found[1]}}


def untagged_keys() -> Rows:
    """Issue 44701: the same tokens with adapter "tenant-7", and with the salt "tenant-7"."""
    engine = Engine(12)
    engine.add(range(1, 10), lora_request=LoRARequest("tenant-7", 1, "/one"))
    engine.step()
    engine.add(range(1, 10), cache_salt="tenant-7")
    engine.step()
    return {AS_IT_IS: {"tokens that B finds": engine.found[1]}}


def same_step_hit() -> Rows:
    """Pull request 38715: three prompts that share two blocks, added at once."""
    engine = Engine(24)
    for own in (40, 50, 60):
        engine.add([*range(10, 18), *range(own, own + 3)], 6)
    first = engine.step()
    return {AS_IT_IS: {"requests that wait a step": 3 - len(first), "prompt tokens computed": engine.num_computed}}


def uncommitted_hash() -> Rows:
    """Pull request 43569: A's chunk is scheduled, and A preempted in the same step; its blocks are found again."""
    limits = {"max_num_seqs": 4, "max_num_batched_tokens": 12, "long_prefill_token_threshold": 8}
    engine = Engine(9, policy="priority", **limits)
    core, manager = engine.core, engine.core.scheduler.kv_cache_manager
    written: dict[tuple[int, int], tuple[str, int]] = {}
    misread: set[str] = set()
    starts: list[int] = []

    def follow(call: str) -> None:
        """Note which slots the plan writes, and who would read one that holds another token, or none."""
        for name, (start, num_tokens) in core.plan.items() if call == "schedule" else ():
            (table,) = manager.get_block_ids(name)
            slots = [(table[position // 4], position % 4) for position in range(start + num_tokens)]
            written.update({slots[position]: (name, position) for position in range(start, len(slots))})
            if any(written.get(slot) != (name, position) for position, slot in enumerate(slots)):
                misread.add(name)
            if name == "0":
                starts.append(start)

    core.after_call = follow
    engine.add(range(100, 129), 1, priority=5)
    engine.step()
    engine.add(range(200, 204), 3, priority=0)
    while not core.is_idle:
        engine.step()
    figures = {
        "preemptions": sum(request.num_preemptions for request in core.requests.values()),
        "tokens that A finds when it comes back": starts[-1],
        "requests that misread": len(misread),
    }
    return {AS_IT_IS: figures}


def state_of_this_step() -> Rows:
    """Pull request 29387: two prompts that share three of four tokens, with states; with and without the guard."""
    workload = {
        "num_blocks": 32,
        "block_size": 1,
        "groups": [{"kind": "full"}, {"kind": "state"}],
        "max_num_seqs": 16,
        "max_num_batched_tokens": 2048,
        "requests": [{"step": 0, "prompt": [1, 2, 3, own], "max_tokens": 2} for own in (4, 5)],
    }

    def found() -> dict[str, int]:
        rows = run_scheduler(workload)
        of_b = next(dict(row["scheduled"])[1] for row in rows if 1 in dict(row["scheduled"]))
        return {"requests in the first step": len(rows[0]["scheduled"]), "hit of B": 4 - of_b}

    with patch.object(MambaManager, "cache_blocks", SingleTypeKVCacheManager.cache_blocks):
        before = found()
    return {"same step": before, AS_IT_IS: found()}


def lookahead_sent() -> Rows:
    """Pull request 44151: the blocks of a prompt's table, and those that are named to a connector."""
    engine = Engine(16)
    engine.add(range(800, 808))
    request, manager = engine.core.requests["0"], engine.core.scheduler.kv_cache_manager
    manager.allocate_slots(request, 8, num_lookahead_tokens=1)
    (table,) = manager.get_block_ids("0")
    (named,) = manager.get_block_ids_for_computed_tokens("0", 8)
    return {"get_block_ids": {"blocks named": len(table)}, AS_IT_IS: {"blocks named": len(named)}}


def next_token() -> Rows:
    """Issue 50438: with EAGLE, and without its drop, what two prompts hit that share four tokens with a first one."""
    workload = {
        "num_blocks": 16,
        "block_size": 4,
        "groups": [{"kind": "full"}],
        "max_num_seqs": 16,
        "max_num_batched_tokens": 2048,
        "speculation": {"num_drafts": 1, "alphabet": 2, "drafter": "eagle"},
        "requests": [
            {"step": 9 * number, "prompt": [1, 2, 3, 4, *own], "max_tokens": 1}
            for number, own in enumerate(((5, 6), (8, 9), (5, 7)))
        ],
    }

    def found() -> dict[str, int]:
        computed = Counter[int]()
        for row in run_scheduler(workload):
            computed.update(dict(row["scheduled"]))
        return {"hit of B": 6 - computed[1], "hit of C": 6 - computed[2]}

    look_up = FullAttentionManager.find_longest_cache_hit

    def whole(*arguments: Any, **asked: Any) -> Any:
        return look_up(*arguments, **{**asked, "drop_eagle_block": False})

    with patch.object(FullAttentionManager, "find_longest_cache_hit", staticmethod(whole)):
        kept = found()
    return {"tokens alone": kept, AS_IT_IS: found()}


def alignment() -> Rows:
    """vLLM-Ascend issue 16270: 40 tokens twice, with blocks of two sizes."""
    rows = {}
    for small, large in ((2, 64), (2, 16), (8, 64)):
        engine = Engine(100, ((small, None), (large, None)))
        engine.generate(range(40))
        engine.generate(range(40))
        rows[f"{small} and {large}"] = {"tokens found": engine.found[1], "tokens computed": engine.num_computed}
    return rows


def sparse_retention() -> Rows:
    """Issue 57610: a prompt of 22 tokens, and one that shares 15 to 22 of them."""
    rows = {}
    for name, interval in {"interval 0": 0, "dense": None}.items():
        engine = Engine(400, ((4, None), (2, 8)), retention_interval=interval)
        for number in range(8):
            tokens = range(1000 * number, 1000 * number + 22)
            engine.generate(tokens)
            engine.generate([*tokens[: 15 + number], *range(40_000 + 100 * number, 40_008 + 100 * number)])
        rows[name] = {f"hit, {15 + number} shared": engine.found[2 * number + 1] for number in range(8)}
    return rows


def last_state_alone() -> Rows:
    """Issue 45238: five prompts of 14 tokens that share 10."""
    prompts = [[*range(10), *range(1000 * number, 1000 * number + 4)] for number in range(1, 6)]
    rows = run_scheduler(
        {
            "num_blocks": 100,
            "block_size": 4,
            "groups": [{"kind": "full"}, {"kind": "state"}],
            "max_num_seqs": 16,
            "max_num_batched_tokens": 2048,
            "requests": [{"step": 9 * n, "prompt": prompt, "max_tokens": 1} for n, prompt in enumerate(prompts)],
        }
    )
    computed = Counter[int]()
    for row in rows:
        computed.update(dict(row["scheduled"]))
    return {AS_IT_IS: {f"hit of prompt {number + 1}": 14 - computed[number] for number in range(5)}}


def partial_blocks() -> Rows:
    """Pull request 42656: a warm prompt, ten short ones, and the warm prompt again."""

    def all_to_the_tail(self: BlockPool, ordered_blocks: Iterable[Any]) -> None:
        freed = []
        for block in ordered_blocks:
            block.ref_cnt -= 1
            if not block.ref_cnt and not block.is_null:
                freed.append(block)
        self.free_block_queue.append_n(freed)

    def found() -> dict[str, int]:
        engine = Engine(9)
        engine.generate(range(1, 18))
        for number in range(10):
            engine.generate([100 + number] * 2)
        engine.generate(range(1, 18))
        return {"tokens found of 16": engine.found[-1]}

    with patch.object(BlockPool, "free_blocks", all_to_the_tail):
        before = found()
    return {"all to the tail": before, AS_IT_IS: found()}


def two_phases() -> Rows:
    """Pull request 44409: a hit and external tokens in three groups, in the old order and in the release's."""

    def doubled() -> dict[str, int]:
        engine = Engine(25, ((4, None), (4, 16), (4, 16)))
        engine.generate(range(32))
        manager = engine.core.scheduler.kv_cache_manager
        engine.add([*range(32), *range(1000, 1009)])
        request = engine.core.requests["1"]
        hit, num_tokens = manager.get_computed_blocks(request)[:2]
        manager.allocate_slots(request, 1, num_tokens, hit, num_external_computed_tokens=8, delay_cache_blocks=True)
        held = Counter(block for table in manager.get_block_ids("1") for block in table if block)
        return {"blocks in two tables": sum(number > 1 for number in held.values())}

    with _interleaved():
        before = doubled()
    return {"interleaved": before, AS_IT_IS: doubled()}


@contextmanager
def _interleaved() -> Iterator[None]:
    """Give each group its hits and its fresh blocks in turn, as before the pull request."""

    def allocate(self: Any, request_id: str, **arguments: Any) -> None:
        counts = arguments["num_local_computed_tokens"], arguments["num_external_computed_tokens"]
        for manager, hits in zip(self.single_type_managers, arguments["new_computed_blocks"], strict=True):
            if request_id in manager.num_cached_block:
                return
            manager.add_local_computed_blocks(request_id, hits, *counts)
            manager.allocate_external_computed_blocks(request_id, *counts)

    with patch.object(KVCacheCoordinator, "allocate_new_computed_blocks", allocate):
        yield


def full_external_hit() -> Rows:
    """LMCache pull request 3322: a connector offers all 8 tokens of a prompt, and loads them in the step or late."""

    def outcome(delay: int) -> dict[str, int]:
        requests = [{"step": 0, "prompt": list(range(1, 9)), "max_tokens": 2}]
        tier = {"delay": delay, "tokens": {"0": 8}, "again": {}}
        limits = {"max_num_seqs": 8, "max_num_batched_tokens": 64}
        workload = {"num_blocks": 8, "block_size": 4, "requests": requests, "tier": tier, **limits}
        try:
            computed = [dict(row["scheduled"])[0] for row in run_scheduler(workload) if row["scheduled"]]
        except AssertionError:
            return {"steps ended by an assertion": 1}
        return {"steps ended by an assertion": 0, "prompt tokens computed": computed[0]}

    return {"loaded in the step": outcome(0), "loaded late": outcome(1)}


RUNS: dict[str, Callable[[], Rows]] = {
    "lmcache-3322": full_external_hit,
    "vllm-29387": state_of_this_step,
    "vllm-30931": adapter_name,
    "vllm-38715": same_step_hit,
    "vllm-42656": partial_blocks,
    "vllm-43569": uncommitted_hash,
    "vllm-44409": two_phases,
    "vllm-44151": lookahead_sent,
    "vllm-44701": untagged_keys,
    "vllm-45238": last_state_alone,
    "vllm-50438": next_token,
    "vllm-57610": sparse_retention,
    "vllm-ascend-16270": alignment,
}
"""Per scenario, what gives its rows."""

PARTS = {"vllm-44151": "KVCacheManager", "vllm-44409": "KVCacheManager"}
"""What has run, where that is not the scheduler."""

if __name__ == "__main__":
    logging.disable(logging.ERROR)
    runs = {id: {"version": VERSION, "part": PARTS.get(id, "Scheduler"), "rows": run()} for id, run in RUNS.items()}
    print(json.dumps(runs))
