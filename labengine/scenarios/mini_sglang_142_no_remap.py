"""mini-sglang pull request 142: a duplicate is freed, and the page table still points to it."""

from __future__ import annotations

from labengine.core.full_attention import FullAttentionGroup
from labengine.core.request import Request
from labengine.lab import Lab
from labengine.scenarios.counts import num_misread_requests, num_rules
from labengine.scenarios.scenario import Column, Scenario


class FreesWithoutRemapping(FullAttentionGroup):
    """The merge as in mini-sglang: the cache keeps the other copy, and this copy's pages are freed."""

    def merge(self, request: Request, index: int, block_id: int, into_block_id: int) -> None:
        """Free the copy without changing the table entry."""
        self.release(request, [block_id], [index], "merged")


class NoRemap(Scenario):
    """Two equal requests, and a third that takes the freed blocks."""

    columns = (Column("nano-vllm+243", FreesWithoutRemapping), Column("nano-vllm+243"))
    figures = {
        "rules broken": num_rules,
        "requests that misread": num_misread_requests,
    }

    def play(self, lab: Lab) -> None:
        """Run A and B for a step, then C's first step, and then a step in which B reads."""
        for _ in range(2):
            lab.add(token_ids=range(1, 10), max_tokens=4)
        lab.step()
        lab.add(token_ids=range(101, 114), max_tokens=4)
        lab.step(2)
