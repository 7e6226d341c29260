"""What vLLM's block pool holds, in plain integers and labels. Runs where vLLM is installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from vllm.utils.hashing import sha256
from vllm.v1.core import kv_cache_utils
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheGroupSpec, MambaSpec, SlidingWindowSpec

from differential.vllm_labels import group_label, prefix_labels

kv_cache_utils.init_none_hash(sha256)


class Group(NamedTuple):
    """One group of the workload: window None is full attention, unless it keeps states."""

    block_size: int
    window: int | None
    keeps_states: bool = False
    is_eagle: bool = False
    num_scratch: int = 0
    checkpoint_alignment: int | None = None


def group_specs(groups: Sequence[Group]) -> list[KVCacheGroupSpec]:
    """The groups for vLLM, each of one thin layer."""
    specs = []
    for index, (block_size, window, keeps_states, is_eagle, num_scratch, alignment) in enumerate(groups):
        shape: dict[str, Any] = {"block_size": block_size, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
        spec: Any
        if keeps_states:
            spec = MambaSpec(
                block_size,
                shapes=((1,),),
                dtypes=(torch.float32,),
                mamba_cache_mode="align",
                num_speculative_blocks=num_scratch,
                num_prefill_checkpoint_blocks=int(alignment is not None),
                prefill_checkpoint_alignment=alignment,
            )
        else:
            spec = FullAttentionSpec(**shape) if window is None else SlidingWindowSpec(sliding_window=window, **shape)
        specs.append(KVCacheGroupSpec([f"layer.{index}"], spec, is_eagle_group=is_eagle))
    return specs


def groups_of(workload: Any) -> list[Group]:
    """The groups of a workload, by default one of full attention."""
    size, groups = workload["block_size"], workload.get("groups") or [{"kind": "full"}]
    num_drafts = (workload.get("speculation") or {}).get("num_drafts", 0)
    return [
        Group(
            g.get("block_size") or size,
            g.get("window"),
            g.get("kind") == "state",
            g.get("eagle", False),
            num_drafts,
            g.get("checkpoint_alignment"),
        )
        for g in groups
    ]


class Labels:
    """Maps each block hash to its content, from the requests that have it."""

    def __init__(self, hash_block_size: int) -> None:
        self._size = hash_block_size
        self._names: dict[bytes, str] = {}
        self.hasher = kv_cache_utils.get_request_block_hasher(hash_block_size, sha256)

    def learn(self, request: Any) -> None:
        """Every full hash block of a request."""
        labels = prefix_labels(list(request.all_token_ids), request.cache_salt, self._size)
        self._names.update(zip(request.block_hashes, labels, strict=True))

    def of(self, key: Any) -> str:
        """The label of a key of the prefix map."""
        return group_label(kv_cache_utils.get_group_id(key), self._names[kv_cache_utils.get_block_hash(key)])


def ref_counts(pool: Any) -> list[int]:
    """By block; the null block's is not kept by vLLM, and reported as 0."""
    return [0] + [block.ref_cnt for block in pool.blocks[1:]]


def free_queue(pool: Any) -> list[int]:
    """Block ids, next victim first."""
    return [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]


def cached(pool: Any, labels: Labels) -> dict[str, list[int]]:
    """The prefix map: label to block ids, the one served first."""
    entries = pool.cached_block_hash_to_block._cache
    return {
        labels.of(key): list(blocks) if isinstance(blocks, dict) else [blocks.block_id]
        for key, blocks in entries.items()
    }


def tables(kv_cache_manager: Any, request_id: str) -> list[list[int]]:
    """A request's block tables, one per group; null entries are 0."""
    return [list(ids) for ids in kv_cache_manager.get_block_ids(request_id)]
