"""Workloads on vLLM's schedulers with its own KV events on: what is cached at each batch. Runs where vLLM is installed.

A workload is one of vllm_upstream_tap's, with `kv_events`: the endpoints of vLLM's own publisher. It stays there, for
whoever asks it for a replay, until the next workload comes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from vllm.v1.core.kv_cache_utils import get_block_hash, get_group_id, maybe_convert_block_hash

from differential.vllm_upstream_tap import _TappedRun

_running: list[Any] = []


def run_kv_events(workload: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Per batch: `cached`, the number of blocks with each "group:hash", and `hits`, how often each was hit so far."""
    while _running:
        _running.pop().shutdown()
    run = _EventRun(workload)
    _running.append(run.scheduler.kv_event_publisher)
    run.complete()
    return run.batches


class _EventRun(_TappedRun):
    def __init__(self, workload: Mapping[str, Any]) -> None:
        super().__init__(workload)
        self.batches: list[dict[str, Any]] = []
        self._hits = Counter[str]()
        manager, publisher = self.scheduler.kv_cache_manager, self.scheduler.kv_event_publisher
        touch, publish = manager.block_pool.touch, publisher.publish

        def touching(blocks: Sequence[Any]) -> None:
            self._hits.update(_name(block.block_hash) for block in blocks if block.block_hash is not None)
            touch(blocks)

        def publishing(batch: Any) -> None:
            entries = manager.block_pool.cached_block_hash_to_block._cache.items()
            cached = {_name(key): len(entry) if isinstance(entry, dict) else 1 for key, entry in entries}
            self.batches.append({"cached": cached, "hits": dict(self._hits)})
            publish(batch)

        manager.block_pool.touch, publisher.publish = touching, publishing


def _name(key: bytes) -> str:
    return f"{get_group_id(key)}:{maybe_convert_block_hash(get_block_hash(key))}"
