"""vLLM issue 49674, fixed by pull request 49675: preempting a request whose blocks are fenced frees nothing.

Since pull request 45357 (0.24.0), with more than one batch in flight and a connector that consumes KV, a preempted
request's blocks return to the pool only when the step in flight is processed. Up to 0.29.0 the loop that looks for a
block did not know that: a victim frees nothing, so the next one is preempted, and the next, until nothing runs. (The
fence here is always on, and no connector is needed.)
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.core.editions import VLLM
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.step_plan import ScheduledRequest
from labengine.events import RequestPreempted, StepEnded, StepStarted
from labengine.lab import Lab
from labengine.scenarios.counts import num_computed_tokens, num_finished
from labengine.scenarios.one_step_ahead import FENCED, FencedScheduler
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, FirstWrong, GuideStop, Scenario, Table, sentences, settings, wrong_at


class RetriesAtOnce(FencedScheduler):
    """Counts on each preemption to free blocks now."""

    def allocate_or_preempt(
        self, request: Request, num_tokens: int, batch: list[ScheduledRequest], preempted: list[int]
    ) -> bool:
        """Preempt the youngest running request, and the next, until blocks are free; fenced ones free none."""
        while not self.manager.allocate(request, num_tokens):
            victim = self.running[-1]
            self.preempt(victim)
            preempted.append(victim.request_id)
            batch[:] = [part for part in batch if part.request_id != victim.request_id]
            if victim is request:
                return False
        return True


CASCADE = Parts(name="vllm, fenced, retries at once", scheduler=RetriesAtOnce).overriding(VLLM)


class PreemptionCascade(Scenario):
    """Four requests fill the pool, and the first of them needs one block more."""

    id = "vllm-49674"
    title = "One missing block preempts every request"
    report = Report(
        repository="vllm-project/vllm",
        kind="issue",
        number="49674",
        title="[Bug]: Deferred KV block frees cause zero-progress preemption cascades with async KV consumers",
        state="closed",
        as_of="2026-09-10",
        seen_in="0.24.0, the first version with deferred frees, to 0.29.0",
        mended_in="0.30.0 (49675)",
        needs=(
            "more than one batch in flight: asynchronous scheduling, or pipeline parallelism",
            "a KV connector that consumes, native CPU offload included",
            "no block for a running request, while a step of the next victim is in flight",
        ),
    )
    claim = (
        "A preempted request whose blocks are fenced until its last step in flight is processed frees nothing for the "
        "allocation that preempted it: one failure can cascade over all running requests without progress."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "In 0.29.0 the loop preempts the last running request whether or not its blocks come free, and tries "
            "again; 0.30.0 stops at a victim whose blocks are fenced."
        ),
        passages=(
            CodePassage(
                version="vllm 0.29.0",
                file="vllm/v1/core/sched/scheduler.py",
                line=705,
                text="preempted_req = self.running.pop()",
                says="The next victim is taken without a look at its fence.",
            ),
            CodePassage(
                version="vllm 0.30.0",
                file="vllm/v1/core/sched/scheduler.py",
                line=756,
                text="if not self._request_blocks_can_be_freed(preempted_req):",
                says="A victim whose blocks cannot be freed now ends the loop, and is not preempted.",
            ),
            ThreadPassage(
                source="vllm-project/vllm 49675",
                says=(
                    "On its one workload output throughput rises by 1.90 %; the author claims no more than that "
                    "workload."
                ),
            ),
            ThreadPassage(
                source="vllm-project/vllm-ascend 16315",
                says=(
                    "With AscendStoreConnector the same loop is reported as a deadlock: 0 tokens a second, all "
                    "requests between preemption and admission."
                ),
            ),
        ),
    )
    kind = "deadlock"
    breaks = "Requests are preempted for blocks that none of them can give back in this step."
    why_unseen = (
        "Each preemption is a valid one, and no table or count is wrong: only the number of victims for one block, and "
        "the empty step, show it."
    )
    question = "Four requests in a full pool, and one block is missing: how many are preempted?"
    roles = ("the bug: the next victim at once", "the fix: wait for the fence")
    columns = (
        Column(
            "retries at once",
            CASCADE,
            (
                "Preempts one request after the other in one step, as vLLM 0.24.0 to 0.29.0; their blocks come a step "
                "later."
            ),
        ),
        Column(
            "waits",
            FENCED,
            "Schedules nothing for the request, and preempts once the victim's step is over, as vLLM since 0.30.0.",
        ),
        Column("vllm, synchronous", "vllm", "Has no step in flight: a victim's blocks are free at once."),
    )
    settings = settings(num_blocks=13, block_size=4)
    num_steps = 60
    guide = (
        GuideStop(
            "Four requests hold 3 blocks each: all 12 are in use. A's next token needs a block, and so do the others'.",
            StepStarted,
            lambda event: event.step == 6,
        ),
        GuideStop(
            "The step computes nothing, on either side: the youngest, D, is in flight, and its blocks are fenced. "
            "Right, no request was preempted for that. Left, D was preempted, which freed nothing; so was C, then B, "
            "and then A.",
            StepEnded,
        ),
        GuideStop(
            "A step later the fence is passed. Left, all four give their blocks back. Right, D alone does.",
            RequestPreempted,
        ),
        GuideStop(
            "Left, what was running is admitted anew, and looks up what it has just lost. Right, three go on.",
            StepEnded,
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Run four requests of 8 prompt tokens to their end."""
        self.opening(lab)
        for _ in range(self.num_steps - 7):
            lab.step()

    def opening(self, lab: Lab) -> None:
        """Run them to the step after the missing block."""
        for first in (1, 101, 201, 301):
            lab.add(token_ids=range(first, first + 8), max_tokens=13)
        for _ in range(7):
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count preemptions in all and for the first missing block, computed tokens, and finished requests."""
        assert lab.timeline is not None
        victims: list[int] = []
        for event in lab.timeline.events():
            if isinstance(event, StepStarted):
                victims.append(0)
            elif isinstance(event, RequestPreempted):
                victims[-1] += 1
        return {
            "preempted for the first block": next((count for count in victims if count), 0),
            "preemptions in all": sum(victims),
            "computed tokens": num_computed_tokens(lab),
            "requests finished": num_finished(lab),
        }

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if one missing block preempted more than one request."""
        return measured["preempted for the first block"] > 1

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the second preemption of a step."""
        assert lab.timeline is not None
        num_victims = 0
        for number, event in enumerate(lab.timeline.events(), lab.timeline.num_dropped):
            num_victims = 0 if isinstance(event, StepStarted) else num_victims + isinstance(event, RequestPreempted)
            if num_victims > 1:
                return wrong_at(lab, number, "A second request is preempted, although one block was missing.")
        return None

    def answer(self, table: Table) -> str:
        """State what one missing block costs here, and what was measured elsewhere."""
        wrong, right = (table[column.name] for column in self.columns[:2])
        return (
            f"One missing block preempts {wrong['preempted for the first block']} requests, and "
            f"{right['preempted for the first block']} where the scheduler waits; {wrong['computed tokens']} tokens "
            f"are computed instead of {right['computed tokens']}. Here all {wrong['requests finished']} requests end. "
            "What it costs depends on the workload: 49675 measured 1.90 % of throughput, and vllm-ascend 16315 "
            "reports 0 tokens a second."
        )


SCENARIO = PreemptionCascade()
