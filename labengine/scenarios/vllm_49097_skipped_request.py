"""vLLM issue 49097: a running request is passed over for a step, because the list that is gone through got shorter.

vLLM goes through its running requests by an index. A victim of a preemption leaves the list; if it stood before the
index and was not scheduled in this step, the index is not lowered, and the next request is skipped.
"""

from __future__ import annotations

from labengine.core.editions import LABENGINE
from labengine.core.parts import Parts
from labengine.core.request import Request, RequestStatus
from labengine.core.step_plan import ScheduledRequest
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.events import RequestAdded, RequestPreempted, RequestScheduled, StepEnded, StepStarted
from labengine.lab import Lab
from labengine.scenarios.counts import events_of
from labengine.scenarios.report import CodePassage, Conclusion, Report
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings


class DefersPrefills(TokenBudgetScheduler):
    """Goes on with a long prompt only when it runs alone, and takes blocks from the least important request: the first.

    It stands for what the report needs: DP prefill balancing, which leaves a prompt out for a step, and priorities.
    """

    def num_plannable(self, request: Request) -> int:
        """Return 0 for a prompt of which chunks are missing, while others run."""
        is_deferred = 0 < request.num_computed_tokens < request.num_prompt_tokens and len(self.running) > 1
        return 0 if is_deferred else super().num_plannable(request)

    def choose_victim(self, request: Request) -> Request:
        """Return the first running request, the one of the lowest priority here."""
        return self.running[0]


class IndexNotLowered(DefersPrefills):
    """Goes through the running requests by an index that a removed request does not lower."""

    def _schedule_running(self, chunk: int, preempted: list[int]) -> list[ScheduledRequest]:
        budget, index = self.config.max_num_batched_tokens, 0
        batch: list[ScheduledRequest] = []
        while index < len(self.running) and budget:
            request = self.running[index]
            index += 1
            num_tokens = min(self.num_plannable(request), budget, chunk)
            if not num_tokens:
                continue
            if not self.allocate_or_preempt(request, request.num_computed_tokens + num_tokens, batch, preempted):
                break
            batch.append(self.plan(request, num_tokens, RequestStatus.RUNNING))
            budget -= num_tokens
        return batch


BROKEN = Column(
    "as 0.27",
    Parts(name="labengine, index as in vLLM 0.27", scheduler=IndexNotLowered).overriding(LABENGINE),
    "Leaves the index where it is when an earlier request that was not scheduled is removed.",
)
FIXED = Column(
    "as 0.28",
    Parts(name="labengine, deferring prefills", scheduler=DefersPrefills).overriding(LABENGINE),
    "Goes on with the request that stands next, wherever the victim stood.",
)


def scheduled_in(lab: Lab, step: int) -> list[int]:
    """Return the requests that a step schedules, in order."""
    assert lab.timeline is not None
    first, last = lab.timeline.step_moments(step)
    return [event.request_id for event in lab.timeline.events(first, last) if isinstance(event, RequestScheduled)]


class SkippedRequest(Scenario):
    """A long prompt A is deferred; B needs a block and preempts A; C, which has all that it needs, stands behind B."""

    id = "vllm-49097"
    title = "A preemption makes the scheduler skip the next running request"
    report = Report(
        repository="vllm-project/vllm",
        kind="issue",
        number="49097",
        title="[Bug]: PRIORITY scheduling can silently skip a running request for a full step when the preemption "
        "victim was already deferred earlier in the same schedule() call",
        state="closed",
        as_of="2026-07-20",
        seen_in="0.12.0 to 0.27.1, by the releases that were read",
        mended_in="0.28.0, by pull request 49206",
        needs=(
            "--scheduling-policy priority",
            "a running request that the step has passed over, such as a prompt that DP prefill balancing defers",
            "a pool so full that another request preempts it",
        ),
    )
    claim = (
        "When the victim of a preemption stands earlier in the running list and was passed over in this step, the "
        "next running request gets no token, though it has a free block and budget is left; a step later it goes on."
    )
    conclusion = Conclusion(
        answer="holds",
        reason="The index is lowered only for a victim that was scheduled in the same step. A step is lost, no state.",
        passages=(
            CodePassage(
                version="vllm 0.27.1",
                file="vllm/v1/core/sched/scheduler.py",
                line=613,
                text="req_index -= 1",
                says="It stands inside the branch for a victim that this step has scheduled.",
            ),
            CodePassage(
                version="vllm 0.28.0",
                file="vllm/v1/core/sched/scheduler.py",
                line=655,
                text="if victim_index < req_index:",
                says="The index is lowered for any victim that stood before it.",
            ),
        ),
    )
    kind = "boundary"
    breaks = "A request that could go on gets no token in this step: its user waits longer, and nothing says so."
    wrong_figure = "requests skipped in step 3"
    seen_by = ("idle",)
    question = "A is deferred, B preempts A, and C is ready. Whom does the step compute?"
    columns = (BROKEN, FIXED)
    settings = settings(num_blocks=4, block_size=4, max_num_batched_tokens=16, long_prefill_token_threshold=8)
    roles = ("the bug: the index stays", "the fix: the index follows the list")
    guide = (
        GuideStop("A has a prompt of 12 tokens, and a step computes at most 8 of it. B and C are short.", RequestAdded),
        GuideStop(
            "From step 2 on A's last chunk is deferred, and only B and C get tokens.",
            StepStarted,
            lambda event: event.step == 2,
        ),
        GuideStop(
            "B needs a block, and none is free: A is preempted. It stood before B, and was passed over in this step.",
            RequestPreempted,
        ),
        GuideStop("B is computed.", RequestScheduled, lambda event: event.request_id == 1),
        GuideStop(
            "Left, the step ends here: the index has moved past C. Right, C is computed too.",
            StepEnded,
            lambda event: event.step == 3,
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Add the three requests, and take three steps."""
        lab.add(token_ids=range(1, 13), max_tokens=1)
        lab.add(token_ids=[50, 51, 52], max_tokens=6)
        lab.add(token_ids=[60, 61], max_tokens=6)
        lab.step(3)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count preemptions, and the running requests that step 3 leaves out."""
        scheduled = scheduled_in(lab, 3)
        running = [i for i, request in lab.snapshot().requests.items() if request.status == "running"]
        return {
            "preemptions": len(events_of(lab, RequestPreempted)),
            "requests computed in step 3": len(scheduled),
            "requests skipped in step 3": len({*running} - {*scheduled}),
        }

    def answer(self, table: Table) -> str:
        """State whom the step computes."""
        wrong, right = (table[column.name]["requests computed in step 3"] for column in self.columns)
        return (
            f"B alone on the left, {wrong} of 2; B and C on the right, {right} of 2. No state is wrong on either side: "
            "C has lost a step, and goes on in the next one."
        )


SCENARIO = SkippedRequest()
