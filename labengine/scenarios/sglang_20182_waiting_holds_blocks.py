"""SGLang pull request 20182: a request that still waits holds memory, and its abort frees nothing.

For models with a recurrent state, the prefix match allocated a slot for the request's state, before it was admitted. An
abort of a waiting request only took it out of the queue: what had not run was assumed to hold nothing. The slot was
lost, and the idle check ended the scheduler. Here the memory of a waiting request is what the external tier has loaded:
labengine has no recurrent states.
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.core.editions import LABENGINE
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.events import BlocksLoaded, RequestFinished, RequestScheduled
from labengine.lab import Lab
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings
from labengine.scenarios.tiers import late_host


class FreesOnlyWhatRan(TokenBudgetScheduler):
    """Assumes that a waiting request holds nothing."""

    def abort(self, request: Request) -> None:
        """End a request; one that waits is dropped with its block tables."""
        if request in self.waiting:
            self._set(request, "block_tables", [[] for _ in request.block_tables])
        super().abort(request)


class WaitingHoldsBlocks(Scenario):
    """B's KV has been loaded, but B cannot run yet, and is aborted."""

    id = "sglang-20182"
    title = "A waiting request is aborted, and what it holds is lost"
    report = Report(
        repository="sgl-project/sglang",
        kind="pull request",
        number="20182",
        title="fix: fix mamba memory leak",
        state="closed, not merged",
        as_of="2026-09-16",
        seen_in="March 2026; the report names no version",
        mended_in=(
            "version 0.5.23 has the release in `abort_request`; which pull request brought it is not known here"
        ),
        needs=(
            "a model with a recurrent state (Mamba, DeltaNet)",
            "the radix cache: a prefix match allocates the state",
            "an abort in the waiting queue",
        ),
    )
    claim = (
        "State that is allocated for a request before it runs is not released when the request is aborted in the "
        "waiting queue: the pool leaks, and the idle check ends the scheduler."
    )
    conclusion = Conclusion(
        answer="holds in part",
        reason=(
            "That a request which only waits can hold a state is in the code, and 0.5.23 releases it in "
            "an abort, where no disaggregation is on. The defect was not looked up in the version that "
            "had it. That the state is lost for ever is not shown: pull request 16067 says of the same "
            "slot, left behind when scheduling fails, that it is untracked rather than lost."
        ),
        passages=(
            CodePassage(
                version="sglang 0.5.23",
                file="sglang/srt/managers/scheduler.py",
                line=5717,
                text="if req.kv.holds_mamba and self.disaggregation_mode not in (",
                says="An abort in the waiting queue releases the state of a request.",
            ),
            ThreadPassage(
                source="sgl-project/sglang 20182",
                says=(
                    "Aborts of the queue limit, of a timeout and of a caller left a state that the match had "
                    "allocated, and the idle check ended the scheduler."
                ),
            ),
        ),
    )
    kind = "abort during load"
    breaks = "Blocks stay counted as used, and no table names them any more."
    seen_by = ("ref_count",)
    question = "B is aborted after its load and before it runs: which blocks come back?"
    roles = ("the bug: out of the queue, and no more", "the fix: free what it holds")
    columns = (
        Column(
            "queue only",
            Parts(name="labengine, frees only what ran", scheduler=FreesOnlyWhatRan).overriding(LABENGINE),
            "Takes the request out of the queue, and forgets its tables.",
            tier=late_host,
        ),
        Column(
            "queue and blocks",
            "labengine",
            "Frees the tables of every request that ends, wherever it waits.",
            tier=late_host,
        ),
    )
    settings = settings(num_blocks=5, block_size=4)
    guide = (
        GuideStop(
            "A runs, and holds 2 blocks of 5. B waits for its load, with 2.",
            RequestScheduled,
        ),
        GuideStop(
            "B's KV has arrived. For its last token it needs one block more, and A takes the last one in this step.",
            BlocksLoaded,
        ),
        GuideStop(
            "B is aborted. Right, its two blocks are freed. Left, it is only taken out of the queue.",
            RequestFinished,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "A ends. Right, all blocks are free. Left, two are used by no request, and no request will get them again.",
            RequestFinished,
            lambda event: event.request_id == 0,
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Run A, which grows into the last block; abort B after its load; then run A to its end."""
        prompt = range(1, 10)
        lab.fill_external(token_ids=prompt)
        lab.add(token_ids=range(101, 109), max_tokens=4)
        lab.add(token_ids=prompt, max_tokens=2)
        lab.step()
        lab.step()
        lab.abort(1)
        for _ in range(3):
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count used blocks, and those of them that a table names."""
        snapshot = lab.snapshot()
        tables = [table for request in snapshot.requests.values() for table in request.block_tables]
        return {"used blocks": snapshot.num_used_blocks, "in a request's table": len(set().union(*tables))}

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if blocks are used by no request."""
        return measured["used blocks"] > measured["in a request's table"]

    def answer(self, table: Table) -> str:
        """State what is lost."""
        wrong, right = (table[column.name]["used blocks"] for column in self.columns)
        return f"With no request left, {wrong} blocks are in use, and {right} where an abort frees what is held."


SCENARIO = WaitingHoldsBlocks()
