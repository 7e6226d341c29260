"""Editions: engines by name. Each behaves like its namesake, down to the free queue; departures: docs/editions.md."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Literal

from labengine.config import ConfigError, shown
from labengine.core.beam_searches import BeamSearches
from labengine.core.block_pool import BlockPool
from labengine.core.collaborator import Absent
from labengine.core.drafts import Drafts
from labengine.core.external_loads import ExternalLoads
from labengine.core.forks import Forks
from labengine.core.free_queue import FreeQueue
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.hand_over import HandOver
from labengine.core.hash_chain import HashChain
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.merge_policy import KeepDuplicates, LateMerge, LateMergeComparingPrefixes, MergePolicy
from labengine.core.mini_sglang.full_attention import UnmappedMergeGroup
from labengine.core.mini_sglang.kv_cache_manager import PrefillEndManager
from labengine.core.mini_sglang.prefix_tree import WholeMatchTree
from labengine.core.mini_sglang.scheduler import WorstCaseScheduler
from labengine.core.nano_vllm.block_pool import NanoBlockPool, StaleMapPool
from labengine.core.nano_vllm.full_attention import OwnTokensGroup
from labengine.core.nano_vllm.kv_cache_manager import EarlyHashManager, NanoKVCacheManager
from labengine.core.nano_vllm.scheduler import PrefillFirstScheduler, UnchunkedScheduler
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import PrefixLookup
from labengine.core.radix.block_pool import RadixBlockPool
from labengine.core.radix.full_attention import RadixGroup
from labengine.core.radix.kv_cache_manager import RadixKVCacheManager
from labengine.core.radix.matching import MatchedGroup, MatchingLookup
from labengine.core.radix.prefix_lookup import TreeLookup
from labengine.core.radix.prefix_tree import PrefixTree
from labengine.core.radix.token_budget import RadixTokenBudgetScheduler
from labengine.core.sglang.full_attention import SglangGroup
from labengine.core.sglang.kv_cache_manager import SglangKVCacheManager
from labengine.core.sglang.prefix_tree import SglangPrefixTree
from labengine.core.sglang.scheduler import SglangScheduler
from labengine.core.sliding_window import SlidingWindowGroup
from labengine.core.state_group import StateGroup
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.core.vllm.async_scheduler import AsyncTokenBudgetScheduler
from labengine.core.vllm.block_pool import VllmBlockPool
from labengine.core.vllm.drafts import VllmDrafts
from labengine.core.vllm.full_attention import PromptTailGroup
from labengine.core.vllm.hash_chain import VllmHashChain
from labengine.core.vllm.kv_cache_manager import VllmKVCacheManager
from labengine.core.vllm.prefix_lookup import VllmPrefixLookup
from labengine.core.vllm.scheduler import VllmScheduler
from labengine.core.vllm.sliding_window import AsyncSlidingWindowGroup, VllmSlidingWindowGroup
from labengine.core.vllm.state_group import VllmStateGroup
from labengine.core.vllm.waiting_queue import VllmPriorityQueue
from labengine.core.waiting_queue import PriorityQueue, WaitingQueue

NANO_VLLM = Parts(
    name="nano-vllm",
    scheduler=PrefillFirstScheduler,
    kv_cache_manager=NanoKVCacheManager,
    full_attention_group=FullAttentionGroup,
    sliding_window_group=SlidingWindowGroup,
    state_group=StateGroup,
    block_pool=NanoBlockPool,
    free_queue=FreeQueue,
    hash_chain=HashChain,
    merge_policy=MergePolicy,
    prefix_lookup=PrefixLookup,
    external_loads=ExternalLoads,
    waiting_queue=WaitingQueue,
    drafts=Drafts,
    forks=Absent,
    beams=Absent,
    hand_over=Absent,
    prefix_tree=Absent,
)
"""nano-vLLM at commit bb823b3."""

NANO_VLLM_243 = Parts(name="nano-vllm+243", merge_policy=LateMerge).overriding(NANO_VLLM)
"""nano-vLLM with the late merge of pull request 243."""

NANO_VLLM_2025_07 = Parts(
    name="nano-vllm-2025-07",
    scheduler=UnchunkedScheduler,
    kv_cache_manager=EarlyHashManager,
    full_attention_group=OwnTokensGroup,
    block_pool=StaleMapPool,
).overriding(NANO_VLLM)
"""nano-vLLM at commit 38baf0b, before hashing moved to the end of the step."""

LABENGINE = Parts(
    name="labengine",
    scheduler=TokenBudgetScheduler,
    kv_cache_manager=KVCacheManager,
    full_attention_group=FullAttentionGroup,
    sliding_window_group=SlidingWindowGroup,
    state_group=StateGroup,
    block_pool=BlockPool,
    free_queue=FreeQueue,
    hash_chain=HashChain,
    merge_policy=LateMergeComparingPrefixes,
    prefix_lookup=PrefixLookup,
    external_loads=ExternalLoads,
    waiting_queue=WaitingQueue,
    drafts=Drafts,
    forks=Forks,
    beams=BeamSearches,
    hand_over=HandOver,
    prefix_tree=Absent,
)
"""The default: vLLM's scheduling and queue order, with late merge."""


VLLM = Parts(
    name="vllm",
    scheduler=VllmScheduler,
    kv_cache_manager=VllmKVCacheManager,
    full_attention_group=PromptTailGroup,
    sliding_window_group=VllmSlidingWindowGroup,
    state_group=VllmStateGroup,
    block_pool=VllmBlockPool,
    hash_chain=VllmHashChain,
    merge_policy=KeepDuplicates,
    prefix_lookup=VllmPrefixLookup,
    drafts=VllmDrafts,
    forks=Absent,
    beams=Absent,
).overriding(LABENGINE)
"""vLLM 0.32, v1, with the synchronous scheduler."""

VLLM_ASYNC = Parts(
    name="vllm-async",
    scheduler=AsyncTokenBudgetScheduler,
    sliding_window_group=AsyncSlidingWindowGroup,
).overriding(VLLM)
"""vLLM 0.32, v1, with the asynchronous scheduler, its default on GPUs."""

LABENGINE_RADIX = Parts(
    name="labengine-radix",
    scheduler=RadixTokenBudgetScheduler,
    kv_cache_manager=RadixKVCacheManager,
    full_attention_group=RadixGroup,
    block_pool=RadixBlockPool,
    prefix_lookup=TreeLookup,
    beams=Absent,
    hand_over=Absent,
    prefix_tree=PrefixTree,
).overriding(LABENGINE)
"""vLLM's scheduling on a prefix tree, with late merge."""

MINI_SGLANG_142 = Parts(
    name="mini-sglang+142",
    scheduler=WorstCaseScheduler,
    kv_cache_manager=PrefillEndManager,
    full_attention_group=MatchedGroup,
    block_pool=RadixBlockPool,
    prefix_lookup=MatchingLookup,
    prefix_tree=WholeMatchTree,
).overriding(NANO_VLLM)
"""mini-sglang with the late merge of pull request 142."""

MINI_SGLANG = Parts(name="mini-sglang", full_attention_group=UnmappedMergeGroup).overriding(MINI_SGLANG_142)
"""mini-sglang at commit 20fcd7f."""

SGLANG = Parts(
    name="sglang",
    scheduler=SglangScheduler,
    kv_cache_manager=SglangKVCacheManager,
    full_attention_group=SglangGroup,
    prefix_tree=SglangPrefixTree,
).overriding(MINI_SGLANG_142)
"""SGLang 0.5.23, first come, first served, with full attention only and event_loop_normal."""

EDITIONS: dict[str, Parts] = {
    str(parts.name): parts
    for parts in (
        *(LABENGINE, LABENGINE_RADIX, VLLM, NANO_VLLM, NANO_VLLM_243, NANO_VLLM_2025_07),
        *(MINI_SGLANG, MINI_SGLANG_142, SGLANG),
    )
}
"""Every edition by its name."""


RECORDED_EDITIONS: dict[str, Parts] = {str(VLLM_ASYNC.name): VLLM_ASYNC}
"""Editions only for checking recordings. They run no lab, whose checks need a step's tokens when it ends."""


Policy = Literal["fcfs", "priority"]
"""The order of the waiting queue: first come, first served, or the most urgent first."""

_BY_PRIORITY = {
    parts.name: Parts(name=f"{parts.name}, priority", waiting_queue=queue).overriding(parts)
    for parts, queue in ((LABENGINE, PriorityQueue), (VLLM, VllmPriorityQueue))
}
"""The editions that support priorities, with the waiting queue of that policy."""


def edition(name: str, policy: str = "fcfs") -> Parts:
    """Return the edition called `name`, with a waiting queue for the policy.

    Raises ConfigError, naming the nearest match or the editions that support the policy.
    """
    parts = _edition(name)
    if policy == "fcfs":
        return parts
    if policy != "priority":
        raise ConfigError(f"policy must be 'fcfs' (first come, first served) or 'priority', got {shown(policy)}")
    if name not in _BY_PRIORITY:
        knowing = " or ".join(map(repr, _BY_PRIORITY))
        raise ConfigError(f"edition {name!r} does not support priorities: use edition {knowing} or policy='fcfs'")
    return _BY_PRIORITY[name]


def with_policy(parts: Parts, edition_name: str, policy: str) -> Parts:
    """Return the edition called `edition_name` with these parts instead of its own, and the policy's waiting queue.

    Raises ConfigError if the policy is "priority" and the parts' queue does not support it, and for the parts of
    RECORDED_EDITIONS.
    """
    combined = parts.overriding(edition(edition_name, policy))
    refuse_recorded(combined)
    queue = combined.waiting_queue
    if policy == "priority" and queue.priority is WaitingQueue.priority:
        raise ConfigError(
            f"policy='priority' needs a waiting queue with priorities, but parts {parts.name!r} have "
            f"{queue.__name__}: name the edition instead, such as edition='vllm', with only the parts that you change, "
            "or use parts whose waiting_queue is a subclass of PriorityQueue"
        )
    return combined


def _edition(name: str) -> Parts:
    if isinstance(name, str) and name in RECORDED_EDITIONS:
        refuse_recorded(RECORDED_EDITIONS[name])
    if not isinstance(name, str) or name not in EDITIONS:
        near = get_close_matches(str(name), EDITIONS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"edition must be one of {', '.join(map(repr, EDITIONS))}, got {shown(name)}.{hint}")
    return EDITIONS[name]


def refuse_recorded(parts: Parts) -> None:
    """Raise ConfigError for parts that book each step one step later."""
    if issubclass(parts.scheduler, AsyncTokenBudgetScheduler):
        raise ConfigError(
            f"edition {parts.name} is only for recordings of vLLM (labengine conform): in a lab, a step's tokens are "
            "known when it ends. Use edition 'vllm', which decides like the synchronous scheduler"
        )
