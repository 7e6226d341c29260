"""vLLM issue 49097: a running request is skipped for a step because the list being traversed gets shorter.

vLLM goes through its running requests by an index. A preemption victim leaves the list; if it was before the index and
was not scheduled in this step, the index is not lowered, and the next request is skipped.
"""

from __future__ import annotations

from labengine.core.request import Request, RequestStatus
from labengine.core.step_plan import ScheduledRequest
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.events import RequestPreempted, RequestScheduled
from labengine.lab import Lab
from labengine.scenarios.counts import events_of
from labengine.scenarios.scenario import Column, Scenario


class DefersPrefills(TokenBudgetScheduler):
    """Continues a long prompt only when it runs alone, and takes blocks from the least important request: the first.

    It stands for the report's conditions: DP prefill balancing, which leaves a prompt out for a step, and priorities.
    """

    def num_plannable(self, request: Request) -> int:
        """Return 0 for a prompt with missing chunks while other requests run."""
        is_deferred = 0 < request.num_computed_tokens < request.num_prompt_tokens and len(self.running) > 1
        return 0 if is_deferred else super().num_plannable(request)

    def choose_victim(self, request: Request) -> Request:
        """Return the first running request, which has the lowest priority here."""
        return self.running[0]


class IndexNotLowered(DefersPrefills):
    """Goes through the running requests by an index, which a removed request does not lower."""

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


def scheduled_in(lab: Lab, step: int) -> list[int]:
    """Return the requests that a step schedules, in order."""
    assert lab.timeline is not None
    first, last = lab.timeline.step_moments(step)
    return [event.request_id for event in lab.timeline.events(first, last) if isinstance(event, RequestScheduled)]


class SkippedRequest(Scenario):
    """A long prompt A is deferred; B needs a block and preempts A; C, which needs nothing, is behind B."""

    columns = (Column("labengine", IndexNotLowered), Column("labengine", DefersPrefills))

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
