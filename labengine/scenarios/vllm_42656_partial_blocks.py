"""vLLM pull request 42656: blocks that no look-up can find are queued like cached ones, and outlive warm blocks.

So it was in V1 up to 0.23. Since 0.24.0 blocks without a hash are freed to the head of the queue.
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.core.editions import VLLM, VllmBlockPool
from labengine.core.parts import Parts
from labengine.events import BlockEvicted, BlockFreed, PrefixHit, RequestFinished
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_hit_tokens
from labengine.scenarios.report import CodePassage, Conclusion, Report
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


class OneOrderForAll(VllmBlockPool):
    """The free queue before the pull request, in vLLM up to 0.23."""

    def reused_first(self, block_ids: list[int]) -> list[int]:
        """Return no block: partly filled ones go to the tail like all others."""
        return []


BROKEN = Column(
    "one order",
    Parts(name="vllm, one order", block_pool=OneOrderForAll).overriding(VLLM),
    "Queues freed blocks in one order, as vLLM 0.22: blocks without a hash push cached ones to the head.",
)
FIXED = Column(
    "hashless first",
    "vllm",
    "Puts blocks without a hash at the head, as vLLM since 0.24.0: they are reused before any cached one.",
)


class ShortPrompts(Experiment):
    """One warm prompt of four full blocks; then short prompts that fill no block."""

    columns = (BROKEN, FIXED)
    settings = settings(num_blocks=9, block_size=4)
    question = "A warm prompt, then ten short ones, one after the other: what does the warm prompt find?"
    num_short = 10
    at_once = False

    def play(self, lab: Lab) -> None:
        """Run the warm prompt, the short ones, and the warm prompt again."""
        warm = range(1, 18)
        lab.generate([warm], max_tokens=1)
        short = [[100 + number] * 2 for number in range(self.num_short)]
        for prompts in [short] if self.at_once else [[prompt] for prompt in short]:
            lab.generate(prompts, max_tokens=1)
        lab.generate([warm], max_tokens=1)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count evicted blocks up to the second look-up, and the tokens that it finds of the warm prompt."""
        return {
            "warm blocks evicted": len(events_of(lab, BlockEvicted)),
            "tokens found of 16": num_hit_tokens(lab, self.num_short + 1),
        }

    def answer(self, table: Table) -> str:
        """State what is left of the warm prompt."""
        wrong, right = table[BROKEN.name], table[FIXED.name]
        how = "eight at once" if self.at_once else "one after the other"
        return (
            f"After {self.num_short} short prompts {how} the warm prompt finds {wrong['tokens found of 16']} of 16 "
            f"tokens in one order, and {right['tokens found of 16']} with hashless blocks first."
        )


class AtOnce(ShortPrompts):
    """The pull request's second case: many requests at once, in a pool that is never full."""

    question = "Thirty short prompts, eight at once, in a pool with room for them beside the warm one"
    settings = settings(num_blocks=16, block_size=4, max_num_seqs=8)
    num_short = 30
    at_once = True


class PartialBlocks(ShortPrompts, Scenario):
    """The pull request's first case: a tight pool."""

    id = "vllm-42656"
    title = "Partly filled blocks evict the cache"
    report = Report(
        repository="vllm-project/vllm",
        kind="pull request",
        number="42656",
        title="Apply LRU policy only to proper cache entries",
        state="merged",
        as_of="2026-09-11",
        seen_in="code of 0.22.1 and 0.23.0 (which queues only scratch blocks of some groups at the head)",
        mended_in="0.24.0 (42656)",
        needs=("V1", "prefix caching", "a pool that gets full, or many requests at once"),
    )
    claim = (
        "Partial blocks, which no look-up can ever find, are evicted in LRU order like cached ones, and so evict these."
    )
    conclusion = Conclusion(
        answer="holds",
        reason="In 0.23.0 a request's blocks are all freed to the tail, with or without a hash.",
        passages=(
            CodePassage(
                version="vllm 0.23.0",
                file="vllm/v1/core/block_pool.py",
                line=441,
                text="self.free_block_queue.append_n(freed_blocks)",
                says="All blocks that are freed by a request go to the tail.",
            ),
            CodePassage(
                version="vllm 0.24.0",
                file="vllm/v1/core/block_pool.py",
                line=634,
                text="self.free_block_queue.prepend_n(blocks_without_hash)",
                says="Blocks without a hash go to the head.",
            ),
        ),
    )
    kind = "LRU"
    breaks = "Cached content is evicted to keep blocks that no look-up can find."
    wrong_figure = "warm blocks evicted"
    why_unseen = (
        "Each eviction is legal: a free block may be reused in any order, and only the hit rate tells the orders apart."
    )
    roles = ("the bug: one order for all", "the fix: blocks without a hash first")
    guide = (
        GuideStop(
            "The warm prompt has ended. Its four full blocks are cached; the fifth holds one token, and no hash.",
            RequestFinished,
        ),
        GuideStop(
            "A short prompt's block is freed: two tokens, no hash. Left, it goes to the tail, behind the warm blocks. "
            "Right, to the head.",
            BlockFreed,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "Left, each short prompt takes the next block from the head, until the warm prompt's blocks are "
            "there: evicted to keep blocks that no request can find. Right, they all reuse the same one.",
            BlockEvicted,
        ),
        GuideStop(
            "The warm prompt comes again. Left, it finds nothing. Right, all of its full blocks.",
            PrefixHit,
            lambda event: event.request_id == 11,
        ),
    )
    sentences = sentences(guide)
    experiments: Mapping[str, Experiment] = {"at once": AtOnce()}

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the first eviction of a cached block, while blocks without content were free."""
        moment = moment_of(lab, BlockEvicted)
        text = "A warm block is evicted, and the free queue holds blocks that no look-up can find."
        return None if moment is None else wrong_at(lab, moment, text)


SCENARIO = PartialBlocks()
