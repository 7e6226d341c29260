"""Editions: engines by name. Each behaves exactly as its namesake, down to the order of the free queue."""

from __future__ import annotations

from difflib import get_close_matches

from labengine.config import ConfigError
from labengine.core.block import Block
from labengine.core.block_pool import BlockPool
from labengine.core.kv_cache_group import FullAttentionGroup, KVCacheGroup
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.parts import Parts
from labengine.core.prefix_cache import HashChain, LateMerge, LateMergeComparingParents, MergePolicy
from labengine.core.request import Request
from labengine.core.scheduler import PrefillFirstScheduler, TokenBudgetScheduler
from labengine.core.step_plan import SlotRun
from labengine.events import QueueEnd


class NanoBlockPool(BlockPool):
    """nano-vLLM keeps one order for all freed blocks."""

    def queue_end(self, block: Block) -> QueueEnd:
        """Every freed block waits its turn at the tail, with or without content."""
        return "tail"


class NanoKVCacheManager(KVCacheManager):
    """nano-vLLM finds the decode slot in the last block."""

    def slot_runs(self, request: Request, start: int, end: int, group: KVCacheGroup) -> tuple[SlotRun, ...]:
        """A decoded token goes to the last block of the table, at the offset of the request's last token."""
        if end - start == 1 and end == request.num_tokens and request.num_generated_tokens:
            return ((request.block_tables[group.index][-1], (request.num_tokens - 1) % group.block_size, 1),)
        return super().slot_runs(request, start, end, group)


NANO_VLLM = Parts(
    name="nano-vllm",
    scheduler=PrefillFirstScheduler,
    kv_cache_manager=NanoKVCacheManager,
    full_attention_group=FullAttentionGroup,
    block_pool=NanoBlockPool,
    hash_chain=HashChain,
    merge_policy=MergePolicy,
)
"""nano-vLLM at commit bb823b3."""

NANO_VLLM_243 = Parts(name="nano-vllm+243", merge_policy=LateMerge).over(NANO_VLLM)
"""nano-vLLM with the late merge of pull request 243."""

LABENGINE = Parts(
    name="labengine",
    scheduler=TokenBudgetScheduler,
    kv_cache_manager=KVCacheManager,
    full_attention_group=FullAttentionGroup,
    block_pool=BlockPool,
    hash_chain=HashChain,
    merge_policy=LateMergeComparingParents,
)
"""The default: vLLM's scheduling and queue order, with late merge."""

EDITIONS: dict[str, Parts] = {str(parts.name): parts for parts in (LABENGINE, NANO_VLLM, NANO_VLLM_243)}
"""Every edition by its name."""


def edition(name: str) -> Parts:
    """The edition of that name. ConfigError for an unknown one, with the nearest match."""
    if not isinstance(name, str) or name not in EDITIONS:
        near = get_close_matches(str(name), EDITIONS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"unknown edition {name!r}; there are {', '.join(map(repr, EDITIONS))}.{hint}")
    return EDITIONS[name]
