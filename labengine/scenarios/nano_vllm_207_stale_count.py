"""nano-vLLM pull request 207: the tokens to compute are counted before the look-up, and the look-up finds some.

A request then computes as many tokens as its prompt has, but starts at the end of its hit: it runs past its own end and
past its block table.
"""

from __future__ import annotations

from labengine.core.nano_vllm.scheduler import PrefillFirstScheduler
from labengine.core.request import Request
from labengine.core.scheduler import NOT_ADMITTED, Admission
from labengine.events import RequestAdded, RequestScheduled, StepRolledBack
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, try_step
from labengine.scenarios.scenario import (
    Column,
    Experiment,
    FirstWrong,
    Scenario,
    moment_of,
    wrong_at,
)


class CountsBeforeTheLookUp(PrefillFirstScheduler):
    """The scheduler before the pull request."""

    def admit(self, request: Request, limit: int, *, is_first: bool) -> Admission:
        """Return the tokens missing before the look-up raised the number of computed ones."""
        missing = request.num_tokens - request.num_computed_tokens
        admitted = super().admit(request, limit, is_first=is_first)
        return admitted if admitted is NOT_ADMITTED else min(missing, limit)


class SecondPrompt(Experiment):
    """Two prompts with a common first block; the second arrives when the first has ended."""

    columns = (Column("nano-vllm", CountsBeforeTheLookUp), Column("nano-vllm"))
    num_shared, num_tokens = 256, 465

    def play(self, lab: Lab) -> None:
        """Run A, then take a step for B; an error may end it."""
        self.run_first(lab)
        self.add_second(lab)
        try_step(lab)

    def run_first(self, lab: Lab) -> None:
        """Run A to its end: one token more than the shared block."""
        lab.generate([range(self.num_shared + 1)], max_tokens=1)

    def add_second(self, lab: Lab) -> None:
        """Add B: A's block, then other tokens."""
        others = range(1000, 1000 + self.num_tokens - self.num_shared)
        lab.add(token_ids=[*range(self.num_shared), *others], max_tokens=2)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Return B's length, the positions [start, end) that the step should compute, and its failure."""
        [scheduled] = [event for event in events_of(lab, RequestScheduled) if event.request_id == 1]
        return {
            "tokens of the prompt": self.num_tokens,
            "first position computed": scheduled.start,
            "end of the computed positions": scheduled.start + scheduled.num_tokens,
            "steps ended by an error": len(events_of(lab, StepRolledBack)),
        }


class StaleCount(SecondPrompt, Scenario):
    """The same with blocks of 4."""

    num_shared, num_tokens = 4, 9
    experiments = {"465 tokens": SecondPrompt()}
    follow_ups = (try_step,)

    def opening(self, lab: Lab) -> None:
        """Run A, and add B."""
        self.run_first(lab)
        self.add_second(lab)

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the event that schedules positions past the prompt's end."""
        ends = {event.request_id: len(event.token_ids) for event in events_of(lab, RequestAdded)}
        moment = moment_of(
            lab, RequestScheduled, lambda e: e.is_prefill and e.start + e.num_tokens > ends[e.request_id]
        )
        text = "Request 1 should compute nine tokens from position 4 on, but its prompt ends with position 8."
        return None if moment is None else wrong_at(lab, moment, text)
