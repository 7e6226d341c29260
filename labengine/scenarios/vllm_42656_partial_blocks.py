"""vLLM pull request 42656: blocks that no look-up can find are queued like cached ones, and outlive warm blocks.

This was so in V1 up to 0.23. Since 0.24.0 blocks without a hash are freed to the head of the queue.
"""

from __future__ import annotations

from labengine.core.vllm.block_pool import VllmBlockPool
from labengine.events import BlockEvicted
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_hit_tokens
from labengine.scenarios.scenario import (
    Column,
    Experiment,
    Scenario,
)


class OneOrderForAll(VllmBlockPool):
    """The free queue before the pull request, in vLLM up to 0.23."""

    def reused_first(self, block_ids: list[int]) -> list[int]:
        """Return no block: partly filled ones go to the tail like all others."""
        return []


class ShortPrompts(Experiment):
    """One warm prompt of four full blocks, then short prompts that fill no block."""

    columns = (Column("vllm", OneOrderForAll), Column("vllm"))
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
        """Count evicted blocks up to the second look-up, and the tokens of the warm prompt that it finds."""
        return {
            "warm blocks evicted": len(events_of(lab, BlockEvicted)),
            "tokens found of 16": num_hit_tokens(lab, self.num_short + 1),
        }


class AtOnce(ShortPrompts):
    """The pull request's second case: many requests at once, in a pool that is never full."""

    num_short = 30
    at_once = True


class PartialBlocks(ShortPrompts, Scenario):
    """The pull request's first case: a tight pool."""

    experiments = {"at once": AtOnce()}
