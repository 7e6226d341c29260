"""sglang-jax pull request 994 (a port of 982): a finished request's last decode slot is freed by two paths.

The prefix cache freed a request's slots up to a length that it inferred. The processor of outputs freed the slot of the
last decode step as well, as one that had been allocated for nothing. It was the same slot. The fix is a single release,
which knows what was committed and what was allocated beyond it.
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.core.editions import LABENGINE
from labengine.core.parts import Parts
from labengine.core.request import FinishReason, Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.events import BlockAllocated, BlockFreed, BlockMerged, SlotsWritten, StepRolledBack
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_finished, num_misread_blocks, step_at_most
from labengine.scenarios.report import Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, Experiment, GuideStop, Scenario, Table, sentences, settings


class TwoReleasePaths(TokenBudgetScheduler):
    """Gives the last decode's block back by itself, before the usual release."""

    def finish(self, request: Request, reason: FinishReason) -> None:
        """Free the last block of each table, then the whole tables."""
        for group in self.manager.groups:
            if table := request.block_tables[group.index]:
                group.release(request, table[-1:], [len(table) - 1], "finished")
        super().finish(request, reason)


COLUMNS = (
    Column(
        "two paths",
        Parts(name="labengine, two release paths", scheduler=TwoReleasePaths).overriding(LABENGINE),
        "Frees the block of the last decode, and then the whole table with that block in it.",
    ),
    Column("one release", "labengine", "Frees the table once; it is empty before the pool gets its blocks."),
)


class UnsharedBlocks(Experiment):
    """A request that shares no block."""

    question = "A request that shares no block ends: does the pool notice?"
    columns = COLUMNS
    settings = settings(num_blocks=8, block_size=4)

    def play(self, lab: Lab) -> None:
        """Run one request; a step that fails ends the play."""
        lab.add(token_ids=range(1, 7), max_tokens=2)
        step_at_most(lab, 4)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count failed steps and finished requests."""
        return {
            "steps that failed": len(events_of(lab, StepRolledBack)),
            "finished requests": 0 if lab.crash else num_finished(lab),
        }

    def answer(self, table: Table) -> str:
        """State that the pool refuses to free a free block."""
        failed = table["two paths"]["steps that failed"]
        return (
            f"A block that no other request holds is free after the first release, and the pool refuses the second: "
            f"{failed} failed step, which would fail again for ever. Upstream's allocator had no count, and reported a "
            "leak at the next idle check."
        )


class TwoPaths(Scenario):
    """A and B have equal prompts and share their blocks; B ends, and its last block is freed twice."""

    id = "sglang-jax-994"
    title = "The last decode slot is freed by two paths"
    report = Report(
        repository="sgl-project/sglang-jax",
        kind="pull request",
        number="994",
        title="Unify memory management across (overlap, non-overlap) x (page>=1) x (retract, finished)",
        state="merged",
        as_of="2026-09-09",
        seen_in="April 2026, before the merge",
        mended_in="the pull request itself, a port of sglang 12224",
        needs=("overlap scheduling",),
    )
    claim = (
        "Release is scattered over several paths: one frees the length that it infers, another the slot of the last "
        "decode step. That slot is in both, and is freed twice."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "One path freed the length that it inferred from the tokens, another the slot of the last "
            "decode step, which is within that length. One release that knows what was committed replaces "
            "both."
        ),
        passages=(
            ThreadPassage(
                source="sgl-project/sglang-jax 994",
                says=(
                    "The call `cache_finished_req` infers the length; the output processor frees the slot of the last "
                    "decode by itself."
                ),
            ),
            ThreadPassage(
                source="sgl-project/sglang-jax 982",
                says=(
                    "The same text before the port: a plain generation ends with a memory leak that the idle "
                    "check finds."
                ),
            ),
        ),
    )
    kind = "double free"
    breaks = "A request that ends drops two references to its last block, and one of them is another request's."
    seen_by = ("said", "ref_count", "held", "read")
    question = "B ends while A shares its blocks, and C asks for memory: whose block does C get?"
    roles = ("the bug: two release paths", "the fix: one release")
    columns = COLUMNS
    settings = settings(num_blocks=6, block_size=4)
    experiments: Mapping[str, Experiment] = {"alone": UnsharedBlocks()}
    guide = (
        GuideStop(
            "B has the same prompt as A. Its two blocks are merged into A's: #0 and #1 have two references each.",
            BlockMerged,
            lambda event: event.index == 1,
        ),
        GuideStop(
            "B ends. Left, the block of its last token is freed by itself, and again with the table: the second "
            "reference to #1 that goes is A's. #1 is free, and A reads it.",
            BlockFreed,
            lambda event: event.block_id == 1,
        ),
        GuideStop(
            "C comes, and left it takes every free block: #1 is the last of them.",
            BlockAllocated,
            lambda event: event.request_id == 2 and event.block_id == 1,
        ),
        GuideStop(
            "The step runs: C writes its prompt into #1, and A reads it there. Right, #1 is A's, and C has to wait.",
            SlotsWritten,
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Run A and B for a step, in which B ends; then add C, which needs four blocks, and take a step."""
        for max_tokens in (6, 1):
            lab.add(token_ids=range(1, 9), max_tokens=max_tokens)
        lab.step()
        lab.add(token_ids=range(101, 114), max_tokens=2)
        lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the references that B dropped, and misread blocks."""
        dropped = [event for event in events_of(lab, BlockFreed) if event.request_id == 1]
        return {
            "references that B had": 2,
            "references that B dropped": sum(event.reason == "finished" for event in dropped),
            "blocks misread": num_misread_blocks(lab),
        }

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if B dropped more references than it had."""
        return measured["references that B dropped"] > measured["references that B had"]

    def answer(self, table: Table) -> str:
        """State what the second release takes away when the block is shared."""
        wrong = table["two paths"]
        return (
            f"B drops {wrong['references that B dropped']} references of {wrong['references that B had']}. No count "
            f"falls below zero, because A holds the block as well: the double free is silent, and "
            f"{wrong['blocks misread']} block is misread."
        )


SCENARIO = TwoPaths()
