"""vLLM pull request 45357: a request's blocks are freed while the step in flight still writes to one of them.

With asynchronous scheduling, step N+1 is launched before the output of step N is processed. If step N ended a request,
vLLM up to 0.23.0 returned its blocks to the pool at once. A waiting request could get them for KV that arrives by RDMA,
which is not ordered with the device's stream. The write of step N+1 then lands on top of the received KV. In vLLM such
an end is a stop token, an abort or a preemption: since pull request 27922 it launches no step past `max_tokens`.
Here `max_tokens` stands for the stop token, and labengine's host tier for a connector that consumes KV.
"""

from __future__ import annotations

from labengine.core.request import Request
from labengine.events import RequestScheduled
from labengine.lab import Lab
from labengine.scenarios.counts import events_of
from labengine.scenarios.one_step_ahead import OneStepAheadScheduler
from labengine.scenarios.scenario import Column, FirstWrong, Scenario, wrong_at


class FreesInFlight(OneStepAheadScheduler):
    """Asynchronous scheduling without the fence."""

    def end_in_flight(self, request: Request) -> None:
        """End the request and free its blocks as soon as its last token is seen."""
        self._remove_running(request)
        self.finish(request, "length")


class FreedInFlight(Scenario):
    """A ends; the step in flight writes A's next token; in between, B's KV is loaded into the block."""

    columns = (Column("vllm", FreesInFlight), Column("vllm", OneStepAheadScheduler), Column("labengine"))

    def play(self, lab: Lab) -> None:
        """Put B's KV into the tier; run A to its last token; add B, and take the step in flight."""
        prompt = range(1, 10)
        lab.fill_external(token_ids=prompt)
        lab.add(token_ids=range(51, 56), max_tokens=2)
        lab.step(2)
        lab.add(token_ids=prompt, max_tokens=1)
        lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the blocks where B found foreign KV. A's last step also reads foreign KV, but its token is dropped."""
        misread = sum(v.rule == "read" and v.request_ids == (1,) for v in lab.violations)
        late = [event for event in events_of(lab, RequestScheduled) if event.request_id == 0 and event.start == 6]
        return {"blocks misread by B": misread, "steps computed for A after its end": len(late)}

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the write that destroys B's KV."""
        found = [v for v in lab.violations if v.rule == "read" and v.request_ids == (1,)]
        if not found or found[0].first_event is None:
            return None
        return wrong_at(lab, found[0].first_event, "A's step in flight writes to a block of B.")
