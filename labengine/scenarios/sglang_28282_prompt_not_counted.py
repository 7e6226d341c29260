"""SGLang pull request 28282: the gain required of a preemption is computed before the prompt's length is known.

SGLang preempts less urgent running requests to admit an urgent one, if that frees enough. labengine and vLLM preempt no
request for an admission, so here a scheduler does it, to show the sum.
"""

from __future__ import annotations

from dataclasses import replace

from labengine.core.request import Request
from labengine.core.step_plan import StepPlan
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.events import RequestAdded, RequestFinished, RequestPreempted, RequestScheduled, StepStarted
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_computed_tokens
from labengine.scenarios.scenario import (
    Column,
    Scenario,
    moment_of,
)


class PreemptsToAdmit(TokenBudgetScheduler):
    """Preempts less urgent requests for the first waiting one, if that frees enough blocks for it."""

    def schedule(self) -> StepPlan:
        """Make room for the first waiting request, then plan the step."""
        victims = self.victims_for(self.next_waiting()) if self.waiting else []
        for victim in victims:
            self.preempt(victim)
        plan = super().schedule()
        return replace(plan, preempted=(*(victim.request_id for victim in victims), *plan.preempted))

    def victims_for(self, request: Request) -> list[Request]:
        """Return the least urgent running requests that free enough for a waiting one; none if they cannot."""
        pool, victims = self.manager.pool, list[Request]()
        if self.manager.num_blocks_needed(request.num_tokens) <= pool.num_free:
            return []
        missing = self.manager.num_blocks_needed(self.num_tokens_wanted(request)) - pool.num_free
        for running in sorted(self.running, key=lambda one: -one.priority):
            if running.priority <= request.priority:
                break
            victims.append(running)
            missing -= running.num_table_entries
            if missing <= 0:
                return victims
        return []

    def num_tokens_wanted(self, request: Request) -> int:
        """Return the tokens for which a waiting request needs blocks: its prompt and its longest answer."""
        return request.num_prompt_tokens + request.sampling.max_tokens


class CountsNoPrompt(PreemptsToAdmit):
    """The reported sum: it reads the prompt's length of a new request while it is still 0."""

    def num_tokens_wanted(self, request: Request) -> int:
        """Return the tokens of the longest answer, without the prompt."""
        return request.sampling.max_tokens


def num_preempted_in_vain(lab: Lab) -> int:
    """Return the number of preemptions in steps that admitted no request, so that none benefited."""
    assert lab.timeline is not None
    steps = {event.step: (0, 0) for event in events_of(lab, StepStarted)}
    step = 0
    waiting: set[int] = set()
    for event in lab.timeline.events():
        num_preempted, num_admitted = steps.get(step, (0, 0))
        match event:
            case StepStarted():
                step = event.step
            case RequestAdded():
                waiting.add(event.request_id)
            case RequestPreempted():
                waiting.add(event.request_id)
                steps[step] = num_preempted + 1, num_admitted
            case RequestScheduled() if event.request_id in waiting:
                waiting.remove(event.request_id)
                steps[step] = num_preempted, num_admitted + 1
    return sum(num_preempted for num_preempted, num_admitted in steps.values() if not num_admitted)


class PromptNotCounted(Scenario):
    """A is urgent and holds most of the pool; B is not and holds little; C is urgent and does not fit beside A."""

    columns = (Column("labengine", CountsNoPrompt), Column("labengine", PreemptsToAdmit))

    def play(self, lab: Lab) -> None:
        """Run A (17 tokens) and B (6 tokens, less urgent), then add C (16 tokens), and run all to the end."""
        self.opening(lab)
        lab.run()

    def opening(self, lab: Lab) -> None:
        """Take the step in which C arrives."""
        lab.add(token_ids=range(100, 117), max_tokens=4)
        lab.add(token_ids=range(200, 206), max_tokens=8, priority=5)
        lab.step()
        lab.add(token_ids=range(300, 316), max_tokens=2)
        lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count preemptions and computed tokens, and the step in which B ends."""
        assert lab.timeline is not None
        end = moment_of(lab, RequestFinished, lambda event: event.request_id == 1)
        return {
            "requests preempted in vain": num_preempted_in_vain(lab),
            "tokens computed": num_computed_tokens(lab),
            "step in which B ends": 0 if end is None else lab.timeline.state(end).step,
        }
