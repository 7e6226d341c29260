"""Workloads of single operations on vLLM's KVCacheManager. Runs where vLLM is installed.

The keys of workload and results are those of `python -m labengine replay`; see docs/contract.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from vllm.sampling_params import SamplingParams
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.request import Request, RequestStatus

from differential import vllm_upstream_pool as pool_rows


def run_ops(workload: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One result per op: what the op gave, and what is held after it."""
    driver = _OpDriver(workload)
    return [driver.result(number, op) for number, op in enumerate(workload["ops"])]


class _OpDriver:
    def __init__(self, workload: Mapping[str, Any]) -> None:
        hash_block_size = workload["block_size"]
        groups = [
            pool_rows.Group(
                group.get("block_size", hash_block_size),
                group.get("sliding_window"),
                group["type"] == "mamba",
                group.get("eagle", False),
                int(workload.get("eagle", False)),
            )
            for group in workload.get("groups") or [{"type": "full"}]
        ]
        self._step_size = math.lcm(*(group.block_size for group in groups))
        self._labels = pool_rows.Labels(hash_block_size)
        self._requests: dict[str, Request] = {}
        self._manager = KVCacheManager(
            KVCacheConfig(
                num_blocks=workload["num_blocks"],
                kv_cache_tensors=[],
                kv_cache_groups=pool_rows.group_specs(groups),
                prefix_cache_retention_interval=workload.get("retention_interval"),
            ),
            max_model_len=workload.get("max_model_len", 8192),
            scheduler_block_size=self._step_size,
            hash_block_size=hash_block_size,
            enable_caching=workload.get("enable_caching", True),
            use_eagle=workload.get("eagle", False),
        )

    def result(self, number: int, op: Mapping[str, Any]) -> dict[str, Any]:
        outcome = getattr(self, "_" + op["op"])(op)
        return {"i": number, "op": op["op"], "req": op.get("req"), **outcome, "state": self._state()}

    def _add(self, op: Mapping[str, Any]) -> dict[str, Any]:
        request = Request(
            request_id=op["req"],
            prompt_token_ids=list(op["tokens"]),
            sampling_params=SamplingParams(max_tokens=100_000),
            pooling_params=None,
            cache_salt=op.get("salt"),
            block_hasher=self._labels.hasher,
        )
        self._requests[op["req"]] = request
        self._labels.learn(request)
        return {}

    def _append(self, op: Mapping[str, Any]) -> dict[str, Any]:
        request = self._requests[op["req"]]
        request.append_output_token_ids(list(op["tokens"]))
        self._labels.learn(request)
        return {}

    def _lookup(self, op: Mapping[str, Any]) -> dict[str, Any]:
        blocks, hit, boundary = self._manager.get_computed_blocks(self._requests[op["req"]])
        return {
            "hit": hit,
            "hit_blocks": [list(ids) for ids in blocks.get_block_ids()],
            "shared_prefix_boundary": boundary,
        }

    def _allocate(self, op: Mapping[str, Any]) -> dict[str, Any]:
        request = self._requests[op["req"]]
        blocks, hit = None, 0
        if op.get("lookup"):
            assert not any(pool_rows.tables(self._manager, op["req"])), "a lookup is for a request without blocks"
            blocks, hit, request.shared_prefix_boundary = self._manager.get_computed_blocks(request)
        external = self._external(request, hit, op.get("external", 0))
        computed = request.num_computed_tokens + hit + external
        left = request.num_tokens - computed
        num_tokens = left if op.get("n") is None else min(op["n"], left)
        outcome = {"hit": hit, "external": external, "n": num_tokens}
        if num_tokens <= 0:
            return outcome | {"ok": False, "why": "nothing to compute"}
        new = self._manager.allocate_slots(
            request,
            num_tokens,
            hit,
            blocks,
            num_external_computed_tokens=external,
            delay_cache_blocks=op.get("delay_cache", False),
            num_lookahead_tokens=op.get("lookahead", 0),
        )
        if new is None:
            return outcome | {"ok": False, "new_blocks": None}
        request.num_computed_tokens = computed + num_tokens
        request.status = RequestStatus.RUNNING
        return outcome | {"ok": True, "new_blocks": [list(ids) for ids in new.get_block_ids()]}

    def _external(self, request: Request, hit: int, wanted: int) -> int:
        """Whole steps of the coarsest group, and a token must be left to compute."""
        most = request.num_tokens - 1 - hit - request.num_computed_tokens
        return max(0, min(wanted, most)) // self._step_size * self._step_size

    def _free(self, op: Mapping[str, Any]) -> dict[str, Any]:
        self._manager.free(self._requests.pop(op["req"]))
        return {}

    def _preempt(self, op: Mapping[str, Any]) -> dict[str, Any]:
        request = self._requests[op["req"]]
        self._manager.free(request)
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        request.status = RequestStatus.PREEMPTED
        return {}

    def _reset(self, op: Mapping[str, Any]) -> dict[str, Any]:
        return {"ok": self._manager.reset_prefix_cache()}

    def _evict(self, op: Mapping[str, Any]) -> dict[str, Any]:
        self._manager.evict_blocks(set(op["blocks"]))
        return {}

    def _step(self, op: Mapping[str, Any]) -> dict[str, Any]:
        self._manager.new_step_starts()
        return {}

    def _state(self) -> dict[str, Any]:
        pool, managers = self._manager.block_pool, self._manager.coordinator.single_type_managers
        return {
            "tables": {name: pool_rows.tables(self._manager, name) for name in self._requests},
            "num_computed": {name: request.num_computed_tokens for name, request in self._requests.items()},
            "num_cached_blocks": {
                name: [manager.num_cached_block.get(name, 0) for manager in managers] for name in self._requests
            },
            "ref_cnt": pool_rows.ref_counts(pool),
            "free_queue": pool_rows.free_queue(pool),
            "cached": pool_rows.cached(pool, self._labels),
        }
