"""vLLM pull request 47728: the window's blocks are freed while the step that reads them is in flight.

vLLM counts a step's tokens as computed when the step is scheduled. Up to 0.25.1, with asynchronous scheduling or
pipeline parallelism, what has left the window was freed by that count, although the step was only launched: it still
reads those blocks. A connector that consumes KV then gets them as the destination of a load, on another stream. The fix
frees by the tokens whose step has been processed. (By the same count too much is freed when drafts are rejected: then a
request reads null entries of its own table. That is not played here.) Here the step itself is planned, then the blocks
are freed, then the load lands, then the step runs: one step of a synchronous scheduler stands for two in flight.
"""

from __future__ import annotations

from labengine.config import GroupSpec
from labengine.core.editions import VLLM
from labengine.core.parts import Parts
from labengine.core.request import Request, RequestStatus
from labengine.core.step_plan import ScheduledRequest
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.events import BlockFreed, BlocksLoaded, RequestScheduled, SlotsWritten, StepEnded
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_misread_blocks
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings


class FreesByScheduledTokens(TokenBudgetScheduler):
    """Counts tokens as computed once they are scheduled."""

    def plan(self, request: Request, num_tokens: int, status: RequestStatus) -> ScheduledRequest:
        """Plan the tokens; then free what the window skips once they are computed, though this step reads it."""
        planned = super().plan(request, num_tokens, status)
        for group in self.manager.groups:
            group.drop_skipped(request, planned.end)
        return planned


BROKEN = Parts(name="vllm, frees by scheduled tokens", scheduler=FreesByScheduledTokens).overriding(VLLM)
NUM_STEPS = 4
"""A's steps before B is added: the prompt's, and decodes up to position 6."""


class WindowInFlight(Scenario):
    """A decodes with a window of 5. In the step that reads position 3 for the last time, B's KV is loaded."""

    id = "vllm-47728"
    title = "The window's blocks are freed before the step that reads them has run"
    report = Report(
        repository="vllm-project/vllm",
        kind="pull request",
        number="47728",
        title="[Bugfix][V1] Free out-of-window blocks on the processed-token basis under async scheduling",
        state="merged",
        as_of="2026-08-05",
        seen_in="0.23.1rc1.dev601 (47282), and code of 0.25.1",
        mended_in="0.26.0 (47728)",
        needs=(
            "more than one batch in flight: asynchronous scheduling, or pipeline parallelism",
            "a sliding window, chunked local attention or Mamba states",
            "a KV connector whose loads are not ordered behind the step, such as SimpleCPUOffloadConnector",
        ),
    )
    claim = (
        "Out-of-window blocks are freed by a count that includes the tokens of the step in flight. That step's window "
        "still covers them, and KV that is loaded into them meanwhile is read in their place."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "In 0.25.1 skipped blocks are freed by all scheduled tokens; since 0.26.0 the tokens in flight are "
            "subtracted."
        ),
        passages=(
            CodePassage(
                version="vllm 0.25.1",
                file="vllm/v1/core/kv_cache_manager.py",
                line=406,
                text="total_computed_tokens,",
                says="The window's blocks are freed by a count that the launch of a step has advanced already.",
            ),
            CodePassage(
                version="vllm 0.26.0",
                file="vllm/v1/core/kv_cache_manager.py",
                line=445,
                text="total_computed_tokens - request.num_in_flight_tokens",
                says="Only tokens whose step has been processed count.",
            ),
            ThreadPassage(
                source="vllm-project/vllm 47728",
                says=(
                    "It names issue 47282, a load that overwrites blocks under a read, as the first of two mended bugs."
                ),
            ),
        ),
    )
    kind = "free in flight"
    breaks = "A block that the launched step reads is free, and another request's KV is loaded into it."
    wrong_figure = "blocks misread"
    seen_by = ("window", "read")
    question = "A's window moves by a block in this step, and B's KV is loaded: what does A read?"
    roles = ("the bug: freed by scheduled tokens", "the fix: freed by computed tokens")
    columns = (
        Column(
            "scheduled",
            BROKEN,
            "Frees what lies before the window of the token after this step, as vLLM 0.25.1 with a step in flight.",
        ),
        Column(
            "computed", "vllm", "Frees what lies before the window of this step's first token, as vLLM since 0.26.0."
        ),
    )
    settings = settings(
        num_blocks=9, groups=(GroupSpec(4, "sliding_window", 5),), external="host", retention_interval=0
    )
    guide = (
        GuideStop(
            "A computes position 7 in this step. Its window of 5 begins at position 3, the last slot of A's first "
            "block.",
            RequestScheduled,
            lambda event: event.request_id == 0 and event.start == 7,
            about_slots=True,
        ),
        GuideStop(
            "Left, the step counts as computed already: the window of position 8 begins at 4, and the first block is "
            "freed. The step that reads it has not run.",
            BlockFreed,
            lambda event: event.reason == "window" and event.index == 0,
        ),
        GuideStop(
            "B is admitted, and its KV arrives from the tier. Left, its block is the one that A is about to read.",
            BlocksLoaded,
        ),
        GuideStop(
            "The step runs. Left, A reads B's KV at position 3. Right, the block is A's until the next step.",
            SlotsWritten,
            lambda event: event.request_id == 0 and event.start == 7,
        ),
        GuideStop(
            "After the step. Right, the next allocation of A will free the block: nothing reads it now.", StepEnded
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Put B's KV into the tier, run A up to position 6, add B, and take the step that computes position 7."""
        prompt = range(101, 106)
        lab.fill_external(token_ids=prompt)
        lab.add(token_ids=range(1, 5), max_tokens=8)
        for _ in range(NUM_STEPS):
            lab.step()
        lab.add(token_ids=prompt, max_tokens=4)
        lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the misread blocks, and the blocks that A's window has given back."""
        freed = [event for event in events_of(lab, BlockFreed) if event.reason == "window"]
        return {"blocks misread": num_misread_blocks(lab), "blocks freed by the window": len(freed)}

    def answer(self, table: Table) -> str:
        """State what the count costs, and what waiting for the step costs."""
        wrong, right = (table[column.name] for column in self.columns)
        return (
            f"By scheduled tokens {wrong['blocks misread']} block is misread, by computed ones "
            f"{right['blocks misread']}. The price is a step: {right['blocks freed by the window']} blocks instead of "
            f"{wrong['blocks freed by the window']} are free when B is admitted."
        )


SCENARIO = WindowInFlight()
