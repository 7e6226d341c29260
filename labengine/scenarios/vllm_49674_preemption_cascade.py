"""vLLM issue 49674, fixed by pull request 49675: preempting a request whose blocks are fenced frees nothing.

Since pull request 45357 (0.24.0), with more than one batch in flight and a connector that consumes KV, a preempted
request's blocks return to the pool only when the step in flight is processed. Up to 0.29.0 the loop that looks for a
block ignored this: a victim frees nothing, so the next one is preempted, and the next, until nothing runs. Here the
fence is always on, and needs no connector.
"""

from __future__ import annotations

from labengine.core.request import Request
from labengine.core.step_plan import ScheduledRequest
from labengine.events import RequestPreempted, StepStarted
from labengine.lab import Lab
from labengine.scenarios.counts import num_computed_tokens, num_finished
from labengine.scenarios.one_step_ahead import FencedScheduler
from labengine.scenarios.scenario import Column, FirstWrong, Scenario, wrong_at


class RetriesAtOnce(FencedScheduler):
    """Expects each preemption to free blocks immediately."""

    def allocate_or_preempt(
        self, request: Request, num_tokens: int, batch: list[ScheduledRequest], preempted: list[int]
    ) -> bool:
        """Preempt the youngest running request, then the next, until blocks are free; fenced victims free none."""
        while not self.manager.allocate(request, num_tokens):
            victim = self.running[-1]
            self.preempt(victim)
            preempted.append(victim.request_id)
            batch[:] = [part for part in batch if part.request_id != victim.request_id]
            if victim is request:
                return False
        return True


class PreemptionCascade(Scenario):
    """Four requests fill the pool, and the first of them needs one more block."""

    columns = (Column("vllm", RetriesAtOnce), Column("vllm", FencedScheduler), Column("vllm"))
    num_steps = 60

    def play(self, lab: Lab) -> None:
        """Run four requests of 8 prompt tokens to the end."""
        self.opening(lab)
        for _ in range(self.num_steps - 7):
            lab.step()

    def opening(self, lab: Lab) -> None:
        """Run the requests to the step after the missing block."""
        for first in (1, 101, 201, 301):
            lab.add(token_ids=range(first, first + 8), max_tokens=13)
        for _ in range(7):
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count all preemptions, those for the first missing block, computed tokens, and finished requests."""
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

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the second preemption of a step."""
        assert lab.timeline is not None
        num_victims = 0
        for number, event in enumerate(lab.timeline.events(), lab.timeline.num_dropped):
            num_victims = 0 if isinstance(event, StepStarted) else num_victims + isinstance(event, RequestPreempted)
            if num_victims > 1:
                return wrong_at(lab, number, "A second request is preempted, although only one block was missing.")
        return None
