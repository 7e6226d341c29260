"""Asynchronous scheduling, one step deep: a step is planned before the last step's output is processed.

labengine's own engine that works ahead (engine/ahead.py) takes a step back if the tokens turn out differently. Upstream
engines do not: a launched step runs to its end, even for a request that has ended meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labengine.core.request import FinishReason, Request, RequestStatus
from labengine.core.step_plan import ScheduledRequest, StepPlan
from labengine.core.token_budget import TokenBudgetScheduler


class OneStepAheadScheduler(TokenBudgetScheduler):
    """A step of the lab, in order: running requests are planned; the last step's output is processed; waiting requests
    are admitted and their loads land; the device computes the plan.

    So a request that ended with the last step is computed once more. Here it ends at its max_tokens; upstream at a stop
    token, because a length is known beforehand.
    """

    def _schedule_running(self, chunk: int, preempted: list[int]) -> list[ScheduledRequest]:
        batch = super()._schedule_running(chunk, preempted)
        for request in [request for request in self.running if self.has_ended(request)]:
            self.end_in_flight(request)
        return batch

    def allocate_or_preempt(
        self, request: Request, num_tokens: int, batch: list[ScheduledRequest], preempted: list[int]
    ) -> bool:
        """Preempt no request for one that has ended: if a block is missing, wait for its output."""
        if not self.has_ended(request) or self.manager.allocate(request, num_tokens):
            return super().allocate_or_preempt(request, num_tokens, batch, preempted)
        self._remove_running(request)
        self.finish(request, "length")
        return False

    def end_in_flight(self, request: Request) -> None:
        """Do nothing yet for a request that ended with the last step: `update` ends it after the step in flight.

        Source: the fence of vLLM PR 45357.
        """

    def has_ended(self, request: Request) -> bool:
        """Return True if the request's last token ends it."""
        return super().finish_reason(request) is not None

    def finish_reason(self, request: Request) -> FinishReason | None:
        """Return None: a step's output is processed only after the next step is planned."""
        return None

    def update(self, plan: StepPlan, sampled: Sequence[int]) -> tuple[int, ...]:
        """Book the step for continuing requests; end those that had ended before it, and drop their tokens."""
        tokens = dict(zip((part.request_id for part in plan.sampling), sampled, strict=True))
        parts = [part for part in plan.scheduled if self._goes_on(self.requests[part.request_id])]
        finished = super().update(StepPlan(tuple(parts)), [tokens[part.request_id] for part in parts if part.samples])
        for request in [request for request in self.running if self._was_in_flight(request, plan, parts)]:
            self._remove_running(request)
            self.finish(request, "length")
            finished += (request.request_id,)
        return finished

    def _goes_on(self, request: Request) -> bool:
        return request.status is not RequestStatus.FINISHED and not self.has_ended(request)

    def _was_in_flight(self, request: Request, plan: StepPlan, booked: Sequence[ScheduledRequest]) -> bool:
        """Return True if the step computed a token of the request but did not book it."""
        is_booked = any(part.request_id == request.request_id for part in booked)
        return not is_booked and any(part.request_id == request.request_id for part in plan.scheduled)


class FencedScheduler(TokenBudgetScheduler):
    """Two steps in flight: a victim in the last step keeps its blocks until the next step is scheduled."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.in_flight: frozenset[int] = frozenset()
        """Requests in the last step, whose output is not processed yet."""

    def schedule(self) -> StepPlan:
        """Take the blocks of fenced victims, whose step is now over, then plan."""
        for victim in [request for request in self.waiting if request.status is RequestStatus.RUNNING]:
            super().take_blocks(victim)
        plan = super().schedule()
        self._journal.record((setattr, self, "in_flight", self.in_flight))
        self.in_flight = frozenset(part.request_id for part in plan.scheduled)
        return plan

    def is_fenced(self, victim: Request) -> bool:
        """Return True if a step in flight computes the request."""
        return victim.request_id in self.in_flight

    def take_blocks(self, victim: Request) -> None:
        """Take a victim's blocks; a fenced victim keeps its blocks for now, so nothing becomes free."""
        if not self.is_fenced(victim):
            super().take_blocks(victim)

    def allocate_or_preempt(
        self, request: Request, num_tokens: int, batch: list[ScheduledRequest], preempted: list[int]
    ) -> bool:
        """Preempt no request while the next victim is fenced; this request waits a step. Source: vLLM PR 49675."""
        if self.is_fenced(self.choose_victim(request)) and not self.manager.allocate(request, num_tokens):
            return False
        return super().allocate_or_preempt(request, num_tokens, batch, preempted)
