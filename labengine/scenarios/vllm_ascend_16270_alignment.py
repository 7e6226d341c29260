"""vLLM-Ascend issue 16270: with blocks of 2 to 4096 tokens, no prompt below 4096 tokens is found again.

A hit can end only where each group has a complete block: at multiples of the least common multiple of all block sizes.
The report names that rule, and in its title the smallest blocks, of 2 tokens, as the cause. The largest blocks decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from labengine.config import GroupSpec
from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.vllm.kv_cache_manager import VllmKVCacheManager
from labengine.events import BlockCached
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_computed_tokens, num_hit_tokens
from labengine.scenarios.scenario import (
    Column,
    Experiment,
    Scenario,
)


class RegistersPerGroup(VllmKVCacheManager):
    """Registers each group's complete blocks, regardless of where other groups' blocks end."""

    def num_cacheable_tokens(self, group: KVCacheGroup, num_tokens: int) -> int:
        """Return the number of tokens in this group's complete blocks."""
        return num_tokens - num_tokens % group.block_size


class EqualPrompts(Experiment):
    """The same prompt twice. Columns differ in the block sizes of two groups; the last one registers per group."""

    columns: ClassVar[tuple[Column, ...]] = (
        Column("vllm"),
        Column("vllm"),
        Column("vllm"),
        Column("vllm", RegistersPerGroup),
    )
    sizes: ClassVar[Mapping[str, tuple[int, ...]]] = MappingProxyType({"2 and 16": (2, 16), "8 and 64": (8, 64)})
    """Block sizes per column, if they differ from the settings."""
    num_tokens = 40
    figures = {
        "blocks registered": lambda lab: sum(event.request_id == 0 for event in events_of(lab, BlockCached)),
        "tokens found": lambda lab: num_hit_tokens(lab, 1),
        "tokens computed": num_computed_tokens,
    }

    def lab(self, column: str, model: str = "simulated") -> Lab:
        """Return an empty lab of one column, with its block sizes."""
        keywords = self.settings_for(model)
        if column in self.sizes and "groups" in keywords:
            keywords["groups"] = tuple(map(GroupSpec, self.sizes[column]))
        return self.column(column).lab(model, keywords)

    def play(self, lab: Lab) -> None:
        """Run the prompt twice."""
        for _ in range(2):
            lab.generate([range(self.num_tokens)], max_tokens=1)


class AsReported(EqualPrompts):
    """The report's block sizes, and a prompt slightly longer than its 2048 tokens."""

    columns = (Column("vllm"), Column("vllm"), Column("vllm"))
    sizes = MappingProxyType({"without blocks of 2": (128, 4096, 32, 32, 8), "half of all but 2": (64, 2048, 16, 2, 4)})
    num_tokens = 2050

    figures = {
        "tokens found": lambda lab: num_hit_tokens(lab, 1),
    }


class Alignment(EqualPrompts, Scenario):
    """Prompts of 40 tokens, shorter than the large block and longer than the small ones."""

    experiments = {"as reported": AsReported()}
