"""Parts: the production classes a core is put together from, each replaceable. An edition is a frozen Parts."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from labengine.config import ConfigError, EngineConfig
from labengine.core.block_pool import BlockPool
from labengine.core.journal import Journal
from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.prefix_cache import HashChain, MergePolicy
from labengine.core.scheduler import Scheduler
from labengine.hooks import Hooks

_AS_EDITION: Any = None


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Who decides what. To tell a bug: subclass one class, override one method, and name the subclass here.

    A field that is not given keeps the edition's class when the parts are laid `over` an edition.
    """

    name: str = "custom"
    scheduler: type[Scheduler] = _AS_EDITION
    kv_cache_manager: type[KVCacheManager] = _AS_EDITION
    full_attention_group: type[KVCacheGroup] = _AS_EDITION
    block_pool: type[BlockPool] = _AS_EDITION
    hash_chain: type[HashChain] = _AS_EDITION
    merge_policy: type[MergePolicy] = _AS_EDITION

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name != "name" and value is not _AS_EDITION and not isinstance(value, type):
                raise ConfigError(f"parts: {f.name} must be a class, not an instance of one: got {value!r}")

    def over(self, edition: Parts) -> Parts:
        """The edition with the fields that are given here in place of its own."""
        given = {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not _AS_EDITION}
        return replace(edition, **given)

    def assemble(self, config: EngineConfig, hooks: Hooks, journal: Journal) -> Scheduler:
        """A core with an empty pool: the scheduler, over its manager, over the groups, over the pool."""
        pool = self.block_pool(config.num_blocks, hooks, journal)
        groups = self._groups(config, pool, hooks, journal)
        manager = self.kv_cache_manager(pool, groups, self.hash_chain(), hooks, journal)
        return self.scheduler(config, manager, hooks, journal)

    def _groups(
        self, config: EngineConfig, pool: BlockPool, hooks: Hooks, journal: Journal
    ) -> tuple[KVCacheGroup, ...]:
        hash_block_size = min(spec.block_size for spec in config.groups)
        merge_policy = self.merge_policy()
        groups = []
        for index, spec in enumerate(config.groups):
            if spec.kind != "full":
                raise ConfigError(f"edition {self.name} has no {spec.kind} KV-cache group; use kind 'full'")
            ratio, rest = divmod(spec.block_size, hash_block_size)
            if rest:
                raise ConfigError(
                    f"group {index}: block_size must be a multiple of {hash_block_size}, the smallest one"
                )
            groups.append(self.full_attention_group(index, spec, ratio, pool, merge_policy, hooks, journal))
        return tuple(groups)
