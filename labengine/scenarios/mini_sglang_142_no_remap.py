"""mini-sglang pull request 142: a duplicate is freed, and the page table still points to it."""

from __future__ import annotations

from labengine.core.editions import NANO_VLLM_243
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.lab import Lab
from labengine.scenarios.counts import num_misread_requests, num_rules
from labengine.scenarios.scenario import Column, Scenario


class FreesWithoutRemapping(FullAttentionGroup):
    """The merge as in mini-sglang: the cache keeps the other copy, and this one's pages are free."""

    def merge(self, request: Request, index: int, block_id: int, into_block_id: int) -> None:
        """Free the copy; the table entry stays as it is."""
        self.release(request, [block_id], [index], "merged")


BROKEN = Column(
    "no remap",
    Parts(name="nano-vllm+243, no remap", full_attention_group=FreesWithoutRemapping).overriding(NANO_VLLM_243),
    "Frees the duplicate; the request goes on reading and writing it.",
)
FIXED = Column("remap", "nano-vllm+243", "Points the table at the block that stays, and frees the duplicate then.")


class NoRemap(Scenario):
    """Two equal requests, and a third one that takes the freed blocks."""

    columns = (BROKEN, FIXED)

    def play(self, lab: Lab) -> None:
        """Run A and B for a step; C's first step; and a step in which B reads."""
        for _ in range(2):
            lab.add(token_ids=range(1, 10), max_tokens=4)
        lab.step()
        lab.add(token_ids=range(101, 114), max_tokens=4)
        lab.step()
        lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count broken rules and misreads."""
        return {"rules broken": num_rules(lab), "requests that misread": num_misread_requests(lab)}


SCENARIO = NoRemap()
