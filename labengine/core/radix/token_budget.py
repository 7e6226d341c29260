"""vLLM's scheduling on a prefix tree."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from labengine.config import EngineConfig
from labengine.core.connector import Connector
from labengine.core.nano_vllm.scheduler import refuse_all_but_full_attention
from labengine.core.radix.kv_cache_manager import RadixKVCacheManager
from labengine.core.radix.scheduler import refuse_finer_links
from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler


class RadixTokenBudgetScheduler(TokenBudgetScheduler):
    """Schedules by a token budget, as vLLM does; whatever a request has computed stays in the tree when it leaves."""

    manager: RadixKVCacheManager

    capabilities: ClassVar[tuple[str, ...]] = ("forks",)

    def refuse_what_it_lacks(self, config: EngineConfig, connector: Connector | None) -> None:
        """Raise ConfigError for windows, states, an external tier, and hashes of less than a block."""
        refuse_all_but_full_attention(config, connector)
        refuse_finer_links(config)

    def _preempt_for_blocks(self, victim: Request) -> None:
        """Insert the victim's blocks, so that it hits those that are not evicted before it is admitted again."""
        self.manager.insert(victim)
        super()._preempt_for_blocks(victim)

    def _preempt_distrusted(self, victim: Request, overwritten: Collection[int]) -> None:
        """Insert the victim's blocks as far as they can be trusted."""
        self.manager.insert(victim, overwritten)
        super()._preempt_distrusted(victim, overwritten)
