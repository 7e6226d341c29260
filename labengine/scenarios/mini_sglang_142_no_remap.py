"""mini-sglang pull request 142: a duplicate is freed, and the page table still points to it."""

from __future__ import annotations

from labengine.core.editions import NANO_VLLM_243
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.events import BlockAllocated, BlockFreed, RequestAdded, SlotsWritten, StepEnded
from labengine.lab import Lab
from labengine.scenarios.counts import num_misread_requests, num_rules
from labengine.scenarios.report import CodePassage, Conclusion, Report
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings


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

    id = "mini-sglang-142"
    title = "A duplicate is freed while its request still uses it"
    report = Report(
        repository="sgl-project/mini-sglang",
        kind="pull request",
        number="142",
        title="Fix radix cache duplicate prefix remapping",
        state="open",
        as_of="2026-07-08",
        seen_in="commit 20fcd7f (2026-03-13)",
        needs=(
            "the radix cache",
            "two requests with a common prefix that are computed side by side",
        ),
    )
    claim = (
        "When part of a running request's prefix is in the radix cache already, its own pages are freed, and its page "
        "table still points to them: later decode steps read pages that may have been given away."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "The pages that the tree has already are freed, and the row of the page table is not written: "
            "a request that goes on reads freed pages."
        ),
        passages=(
            CodePassage(
                version="mini-sglang 20fcd7f",
                file="python/minisgl/scheduler/cache.py",
                line=74,
                text="self._free(page_indices[old_handle.cached_len : cached_len])",
                says="The duplicate pages are free.",
            ),
            CodePassage(
                version="mini-sglang 20fcd7f",
                file="python/minisgl/scheduler/cache.py",
                line=78,
                text="req.cache_handle = new_handle",
                says="A request that goes on gets a new handle, and no other entries in its table.",
            ),
        ),
    )
    kind = "merge"
    breaks = "Another request writes its KV to blocks that the first one still reads."
    wrong_figure = "requests that misread"
    seen_by = ("ref_count", "held", "read")
    columns = (BROKEN, FIXED)
    settings = settings(num_blocks=8, block_size=4)
    question = "A and B are equal, and B's copies are freed; C takes them: what does B read?"
    roles = ("the bug: freed, not remapped", "the fix: remapped, then freed")
    guide = (
        GuideStop(
            "A and B have the same prompt, and are computed in the same step: two copies of both full blocks.",
            RequestAdded,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "B's copies are freed: A's have the same content. Right, B's table points at A's blocks by now. Left, it "
            "still points at the freed ones.",
            BlockFreed,
        ),
        GuideStop("After the step. Left, two blocks are in the free queue and in B's table.", StepEnded),
        GuideStop("C comes, with another prompt.", RequestAdded, lambda event: event.request_id == 2),
        GuideStop(
            "C needs four blocks. Left, B's are among them.",
            BlockAllocated,
            lambda event: event.request_id == 2 and event.index == 3,
        ),
        GuideStop(
            "C's KV is written. Left, over what B reads from now on.", SlotsWritten, lambda event: event.request_id == 2
        ),
        GuideStop(
            "B decodes. Left, with C's keys and values at the beginning of its own text.",
            StepEnded,
            lambda event: event.step == 3,
        ),
    )
    sentences = sentences(guide)

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

    def answer(self, table: Table) -> str:
        """State what is broken."""
        wrong, right = (table[column.name] for column in self.columns)
        return (
            f"{wrong['rules broken']} rules are broken, and {wrong['requests that misread']} request reads C's KV; "
            f"{right['rules broken']} with the remap. The order matters: a table may not name a block that is free, "
            f"not even for the time between the two."
        )


SCENARIO = NoRemap()
