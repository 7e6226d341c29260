"""vLLM pull request 44151: a prompt is sent to another engine together with the block kept for guesses.

A prefill engine computes a prompt and names its blocks; a decode engine reads them. With EAGLE or MTP the prefill
engine keeps slots after the prompt, to which the drafter writes. If the prompt ends at a block's end, they are a
separate block: one more than the decode engine has. The decode engine takes the last ones, as if it already had the
first one cached, so each block is read into the previous block's place. Here one lab stands for both engines, with a
tier between them and a cache that is cleared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from labengine.core.connector import BlockTransfer
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.step_plan import ScheduledRequest
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.engine.external.host import HostStore
from labengine.lab import Lab
from labengine.scenarios.scenario import Column, Experiment, Scenario, Table


class KeepsASlot(KVCacheManager):
    """Keeps one slot after a request's tokens for the KV of a drafter that guesses one token."""

    def num_slots(self, request: Request, num_tokens: int) -> int:
        """Return the number of tokens plus one."""
        return num_tokens + 1


class SendsTheLastBlocks(TokenBudgetScheduler):
    """Sends as many blocks as the prompt fills, counted from the end of the table."""

    def choose_saves(self, batch: Sequence[ScheduledRequest]) -> tuple[BlockTransfer, ...]:
        """Return the blocks to send, each instead of the block equally far from the prompt's end."""
        ends = {part.request_id: part.end for part in batch}
        return tuple(self._from_the_end(save, ends[save.request_id]) for save in super().choose_saves(batch))

    def _from_the_end(self, save: BlockTransfer, end: int) -> BlockTransfer:
        table = self.requests[save.request_id].block_tables[save.group]
        num_filled = -(-end // self.config.groups[save.group].block_size)
        return replace(save, block_id=table[save.index + len(table) - num_filled])


class HandedOver(Experiment):
    """Prompts that are computed, forgotten by the cache, and read back from the tier with the token after them."""

    columns = (
        Column("labengine", Parts(kv_cache_manager=KeepsASlot, scheduler=SendsTheLastBlocks), tier=HostStore),
        Column("labengine", KeepsASlot, tier=HostStore),
        Column("labengine", tier=HostStore),
    )
    lengths: tuple[int, ...] = (8,)

    def play(self, lab: Lab) -> None:
        """Run each prompt to its first token; clear the pool's cache; continue after that token."""
        for length in self.lengths:
            prompt = range(100 * length, 101 * length)
            [output] = lab.generate([prompt], max_tokens=1)
            lab.reset_prefix_cache()
            lab.generate([[*prompt, *output.token_ids]], max_tokens=2)

    def misread(self, lab: Lab) -> dict[int, int]:
        """Return the number of misread blocks per prompt length."""
        found = [request_id for one in lab.violations if one.rule == "read" for request_id in one.request_ids]
        return {length: found.count(2 * number + 1) for number, length in enumerate(self.lengths)}


class OtherLengths(HandedOver):
    """Prompts that end before, at and after a block's end."""

    lengths = (6, 7, 8, 9)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Return the misread blocks per length."""
        return {f"{length} tokens": number for length, number in self.misread(lab).items()}

    def more(self, table: Table) -> Mapping[str, object]:
        """Return further values that the finding names."""
        return {"wrong": ", ".join(row for row, number in table["whole table"].items() if number)}


class LookaheadSent(HandedOver, Scenario):
    """A prompt of exactly two blocks."""

    experiments = {"other lengths": OtherLengths()}

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count misread blocks."""
        return {"blocks misread": sum(self.misread(lab).values())}
