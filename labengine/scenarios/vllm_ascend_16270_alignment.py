"""vLLM-Ascend issue 16270: with blocks of 2 to 4096 tokens, no prompt below 4096 is found again.

A hit can end only where each group has a complete block: at multiples of the least common multiple of all block sizes.
The report names that, and in its title the smallest blocks, of 2 tokens, as the cause. What decides are the largest.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from labengine.config import GroupSpec
from labengine.core.editions import VLLM, VllmKVCacheManager
from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.parts import Parts
from labengine.events import BlockCached, PrefixHit, StepEnded
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_computed_tokens, num_hit_tokens
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import (
    Column,
    Experiment,
    FirstWrong,
    GuideStop,
    Scenario,
    Table,
    moment_of,
    sentences,
    settings,
    wrong_at,
)

ASCEND = "vllm-ascend cf0baa38"


class RegistersPerGroup(VllmKVCacheManager):
    """Registers the complete blocks of each group, wherever those of the others end."""

    def num_cacheable_tokens(self, group: KVCacheGroup, num_tokens: int) -> int:
        """Return what this group's blocks hold."""
        return num_tokens - num_tokens % group.block_size


class EqualPrompts(Experiment):
    """A prompt, and the same once more. The columns differ in the block sizes of two groups, and not in code."""

    columns: ClassVar[tuple[Column, ...]] = (
        Column("2 and 64", "vllm", "Blocks of 2 tokens in one group and of 64 in the other: hits end at 64."),
        Column("2 and 16", "vllm", "The large blocks are smaller: hits end at multiples of 16."),
        Column("8 and 64", "vllm", "The small blocks are larger: hits still end at 64."),
        Column(
            "2 and 64, registered per group",
            Parts(name="vllm, registers per group", kv_cache_manager=RegistersPerGroup).overriding(VLLM),
            "Registers blocks of 2 by themselves: a hit needs both groups, and the other one has none.",
        ),
    )
    settings = settings(num_blocks=100, groups=(GroupSpec(2), GroupSpec(64)))
    sizes: ClassVar[Mapping[str, tuple[int, ...]]] = MappingProxyType({"2 and 16": (2, 16), "8 and 64": (8, 64)})
    """Per column its block sizes, where they are not those of the settings."""
    num_tokens = 40

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

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count blocks that are registered for the first prompt, the second one's hit, and the work."""
        return {
            "blocks registered": sum(event.request_id == 0 for event in events_of(lab, BlockCached)),
            "tokens found": num_hit_tokens(lab, 1),
            "tokens computed": num_computed_tokens(lab),
        }


class AsReported(EqualPrompts):
    """The block sizes of the report, and a prompt of some tokens more than its 2048."""

    question = "Blocks of 128, 4096, 32, 2 and 8, a prompt of 2050: what does the second one find?"
    columns = (
        Column("as reported", "vllm", "The five block sizes of the report."),
        Column("without blocks of 2", "vllm", "Blocks of 32 in place of those of 2."),
        Column("half of all but 2", "vllm", "Half of all sizes but the smallest, as with --block-size 16."),
    )
    settings = settings(
        num_blocks=2500, max_num_batched_tokens=8192, groups=tuple(map(GroupSpec, (128, 4096, 32, 2, 8)))
    )
    sizes = MappingProxyType({"without blocks of 2": (128, 4096, 32, 32, 8), "half of all but 2": (64, 2048, 16, 2, 4)})
    num_tokens = 2050

    def measure(self, lab: Lab) -> dict[str, int]:
        """Return what the second prompt finds."""
        return {"tokens found": num_hit_tokens(lab, 1)}

    def answer(self, table: Table) -> str:
        """State that the blocks of 2 make no difference."""
        reported, without, half = (column["tokens found"] for column in table.columns.values())
        return (
            f"In the report's sizes a prompt of {self.num_tokens} tokens finds {reported}, and without blocks of 2 "
            f"{without}. With half of the other sizes it finds {half}."
        )


class Alignment(EqualPrompts, Scenario):
    """Prompts of 40 tokens, below the large block and above the small ones."""

    id = "vllm-ascend-16270"
    title = "One group's long blocks, and no hit below them"
    report = Report(
        repository="vllm-project/vllm-ascend",
        kind="issue",
        number="16270",
        title=(
            "[Bug][v0.26.0rc1] DeepSeek-V4 prefix caching 0% hit rate for prompts shorter than 4096 tokens due to C4 "
            "compressor state cache block_size=2"
        ),
        state="open",
        as_of="2026-09-10",
        seen_in="0.26.0rc1, with vLLM 0.26.0 and DeepSeek-V4",
        needs=(
            "a model whose KV-cache groups have unlike block sizes",
            "prompts that are shorter than the least common multiple of these sizes",
        ),
    )
    kind = "alignment"
    breaks = "A prompt that is known completely is computed again, because it is shorter than one group's blocks."
    why_unseen = "A hit that is shorter than one could wish for breaks no rule: all groups together have no longer one."
    claim = (
        "No prompt below 4096 tokens hits, because hits are aligned to the least common multiple of all block sizes. "
        "The cause is the group with blocks of 2 tokens, which drags the common block size down to 2."
    )
    conclusion = Conclusion(
        answer="holds in part",
        reason=(
            "That hits end at multiples of 4096 is so, as the report derives it. But the blocks of 2 have no part in "
            "it: the least common multiple of 128, 4096, 32 and 8 is 4096 too. It is that of the group that compresses "
            "128 tokens into one, whose block of 32 entries stands for 4096 tokens."
        ),
        passages=(
            CodePassage(
                version=ASCEND,
                file="vllm_ascend/models/layer/attention/layer.py",
                line=37,
                text="32: [[32, 32, 2, 8], [4160, 32768]]",
                says="With --block-size 32 the states have blocks of 2 and 8 tokens.",
            ),
            CodePassage(
                version=ASCEND,
                file="vllm_ascend/patch/platform/patch_kv_cache_coordinator.py",
                line=265,
                text="self.lcm_block_size = lcm(*block_sizes)",
                says="Hits are aligned to the least common multiple of the block sizes.",
            ),
            CodePassage(
                version="vllm 0.26.0",
                file="vllm/v1/core/kv_cache_utils.py",
                line=659,
                text="scheduler_block_size = math.lcm(*group_block_sizes)",
                says="So does vLLM for all models with several groups.",
            ),
            ThreadPassage(
                source="vllm-project/vllm-ascend 10710",
                says=(
                    "A maintainer, in June 2026: a block size of 128 and a compression of 128 make the shortest hit "
                    "16k, and a block size of 32 makes it 4k, which is recommended."
                ),
            ),
            ThreadPassage(
                source="vllm-project/vllm-ascend 12882",
                says="A pull request, open in July 2026, allows a block size of 16, and names 2048 as the alignment.",
            ),
        ),
    )
    question = "40 tokens, and the same 40 once more: what is found with blocks of 2 and 64, and with other sizes?"
    roles = ("blocks of 2 and 64", "blocks of 2 and 16")
    guide = (
        GuideStop(
            "The first prompt is computed. Left, nothing is registered: 20 blocks of 2 are complete, and none of 64. "
            "Right, 32 tokens are: there a block of 2 and one of 16 end together.",
            BlockCached,
        ),
        GuideStop(
            "The same prompt once more. Left, no hit could end before 64, and it finds nothing. Right, it finds 32.",
            PrefixHit,
            lambda event: event.request_id == 1,
        ),
        GuideStop("Left, all 40 tokens are computed again.", StepEnded),
    )
    sentences = sentences(guide)
    experiments: Mapping[str, Experiment] = {"as reported": AsReported()}

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if the second prompt finds nothing."""
        return measured["tokens found"] == 0

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the second prompt's look-up, if it finds nothing."""
        moment = moment_of(lab, PrefixHit, lambda event: event.request_id == 1 and not event.num_tokens)
        sentence = "All 40 tokens are known; no block of 64 tokens ends within them, so no hit can."
        return None if moment is None else wrong_at(lab, moment, sentence)

    def answer(self, table: Table) -> str:
        """State what is found."""
        small, right, larger, each = (column["tokens found"] for column in table.columns.values())
        return (
            f"With blocks of 2 and 64 the second prompt finds {small} of 40 tokens, with 2 and 16 it finds {right}. "
            f"Larger small blocks change nothing ({larger}), nor does registering each group's blocks by themselves "
            f"({each} found, {table.columns['2 and 64, registered per group']['blocks registered']} registered)."
        )


SCENARIO = Alignment()
