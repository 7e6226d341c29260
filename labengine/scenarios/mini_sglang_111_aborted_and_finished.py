"""mini-sglang pull request 111: a request is aborted while its last step is in flight, and is freed twice.

With an overlapped scheduler the next batch is launched before the output of the last one is processed. An abort that
comes in between freed the request's pages at once. Then the output was processed, the request was found to have ended,
and the same pages were freed again. The fix leaves the request to the step in flight. Here blocks have reference
counts, which mini-sglang's pages have not: the second free takes another request's reference.
"""

from __future__ import annotations

from labengine.core.editions import LABENGINE
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.events import BlockAllocated, BlockFreed, BlockMerged, SlotsWritten
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_misread_blocks, step_at_most
from labengine.scenarios.one_step_ahead import OneStepAheadScheduler
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings


class FreesOnAbort(OneStepAheadScheduler):
    """Frees the blocks of an aborted request at once, and leaves the request to the step in flight."""

    def abort(self, request: Request) -> None:
        """Give back every block of a request that runs; its end is noticed with the output of its step."""
        if request not in self.running:
            return super().abort(request)
        for group in self.manager.groups:
            table = request.block_tables[group.index]
            group.release(request, table, range(len(table)), "aborted")
        return None


class DefersAborts(OneStepAheadScheduler):
    """Leaves a request that has ended by itself to the processing of its output."""

    def abort(self, request: Request) -> None:
        """End a request, unless its last token is there already: then the step in flight ends it."""
        if request not in self.running or not self.has_ended(request):
            super().abort(request)


class AbortedAndFinished(Scenario):
    """A and B have equal prompts and share their blocks; B is aborted while its last step is in flight."""

    id = "mini-sglang-111"
    title = "A request is aborted and finished, and its pages are freed by both"
    report = Report(
        repository="sgl-project/mini-sglang",
        kind="pull request",
        number="111",
        title="[Fix] Avoid double-free in overlap_loop if Req is aborted while finishing",
        state="open",
        as_of="2026-07-08",
        seen_in="commit 20fcd7f (2026-03-13)",
        needs=(
            "overlap scheduling, the default",
            "an abort that arrives while the last step of its request is in flight",
        ),
    )
    claim = (
        "An abort frees a request's resources at once. If its last batch is still in flight, the processing of that "
        "batch frees them again."
    )
    conclusion = Conclusion(
        answer="holds in part",
        reason=(
            "The abort frees at once, and the output in flight frees again: that holds. In code the pages "
            "that are inserted end in the tree and in the free list; only the row of the page table and "
            "the tail behind the last insert are in a free list twice."
        ),
        passages=(
            CodePassage(
                version="mini-sglang 20fcd7f",
                file="python/minisgl/scheduler/scheduler.py",
                line=195,
                text="self._free_req_resources(req_to_free)",
                says="An abort frees the resources of the request when its message arrives.",
            ),
            CodePassage(
                version="mini-sglang 20fcd7f",
                file="python/minisgl/scheduler/scheduler.py",
                line=159,
                text="if finished and req not in self.finished_reqs:",
                says="The second free is skipped after an end by itself, and not after an abort.",
            ),
            CodePassage(
                version="mini-sglang 20fcd7f",
                file="python/minisgl/scheduler/scheduler.py",
                line=201,
                text="self.table_manager.free(req.table_idx)",
                says="The row of the page table is given back in each of the two.",
            ),
            ThreadPassage(
                source="sgl-project/mini-sglang 111",
                says=(
                    "A message may abort a request whose batch is in flight, and frees its table row before the "
                    "output is processed."
                ),
            ),
        ),
    )
    kind = "double free"
    breaks = "An aborted request drops each of its references twice, and the second ones are another request's."
    wrong_figure = "blocks misread"
    seen_by = ("said", "ref_count", "held", "read")
    question = "B is aborted in the step in which it ends, and C asks for memory: whose blocks does C get?"
    roles = ("the bug: both paths free", "the fix: the abort waits for the step")
    columns = (
        Column(
            "both free",
            Parts(name="labengine, abort and end free", scheduler=FreesOnAbort).overriding(LABENGINE),
            "Frees B's blocks when it is aborted, and B's whole table when its output is processed.",
        ),
        Column(
            "deferred",
            Parts(name="labengine, deferred aborts", scheduler=DefersAborts).overriding(LABENGINE),
            "Ignores the abort of a request whose last token is there: its end is under way.",
        ),
        Column("labengine", "labengine", "Has no step in flight: B has ended when its abort comes."),
    )
    settings = settings(num_blocks=6, block_size=4)
    guide = (
        GuideStop(
            "B has the same prompt as A. Its two blocks are merged into A's: #0 and #1 have two references each.",
            BlockMerged,
            lambda event: event.index == 1,
        ),
        GuideStop(
            "B has its last token, and the scheduler has not processed it when the abort comes. Left, B's blocks are "
            "given back at once: the references that stay are A's.",
            BlockFreed,
            lambda event: event.reason == "aborted" and event.block_id == 1,
        ),
        GuideStop(
            "The step in flight is over, and B is found to have ended. Left, its blocks are given back again: #1 is "
            "free, and A reads it. Right, this is the only time.",
            BlockFreed,
            lambda event: event.reason == "finished" and event.block_id == 1,
        ),
        GuideStop(
            "C comes, and left it takes every free block but one: #1 is the last of them.",
            BlockAllocated,
            lambda event: event.request_id == 2 and event.block_id == 1,
        ),
        GuideStop(
            "The step runs: C writes the end of its prompt into #1, and A reads it there. Right, #1 is A's, and C has "
            "to wait.",
            SlotsWritten,
            lambda event: event.request_id == 2,
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Run A and B for a step, which gives B its last token; abort B; add C, and take two steps."""
        for max_tokens in (6, 1):
            lab.add(token_ids=range(1, 9), max_tokens=max_tokens)
        lab.step()
        lab.abort(1)
        lab.add(token_ids=range(101, 114), max_tokens=2)
        step_at_most(lab, 2)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the references that B dropped at its end, and misread blocks."""
        dropped = [event for event in events_of(lab, BlockFreed) if event.request_id == 1]
        return {
            "references dropped by the abort": sum(event.reason == "aborted" for event in dropped),
            "references dropped by the end": sum(event.reason == "finished" for event in dropped),
            "blocks misread": num_misread_blocks(lab),
        }

    def answer(self, table: Table) -> str:
        """State the references, and why the order of the two does not matter."""
        wrong, right, own = (table[column.name] for column in self.columns)
        abort, end = "references dropped by the abort", "references dropped by the end"
        return (
            f"B drops {wrong[abort]} references by its abort and {wrong[end]} by its end, one of them that of the step "
            f"in flight: {wrong['blocks misread']} block of A is misread. Deferred, {right[abort]} and {right[end]}. "
            f"Where no step is in flight B has ended when its abort comes, and drops {own[end]}. Each path is right "
            "alone."
        )


SCENARIO = AbortedAndFinished()
