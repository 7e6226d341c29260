"""SGLang pull request 28282: what a preemption has to bring is computed before the prompt's length is known.

SGLang preempts less urgent running requests to admit an urgent one, if that frees enough. labengine and vLLM preempt no
request for an admission: here a scheduler does, so that its sum can be told.
"""

from __future__ import annotations

from dataclasses import replace

from labengine.core.editions import edition
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.step_plan import StepPlan
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.events import RequestAdded, RequestFinished, RequestPreempted, RequestScheduled, StepEnded, StepStarted
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_computed_tokens
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import (
    Column,
    FirstWrong,
    GuideStop,
    Scenario,
    Table,
    moment_of,
    sentences,
    settings,
    wrong_at,
)


class PreemptsToAdmit(TokenBudgetScheduler):
    """Preempts less urgent requests for the first waiting one, if this frees the blocks that it lacks."""

    def schedule(self) -> StepPlan:
        """Make room for the first waiting request; then plan the step."""
        victims = self.victims_for(self.next_waiting()) if self.waiting else []
        for victim in victims:
            self.preempt(victim)
        plan = super().schedule()
        return replace(plan, preempted=(*(victim.request_id for victim in victims), *plan.preempted))

    def victims_for(self, request: Request) -> list[Request]:
        """Return the least urgent running requests that free what a waiting one lacks; none if they cannot."""
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
        """Return the tokens for which a waiting request wants blocks: its prompt, and all that it may generate."""
        return request.num_prompt_tokens + request.sampling.max_tokens


class CountsNoPrompt(PreemptsToAdmit):
    """The reported sum: the length of a new request's prompt is still 0 when it is read."""

    def num_tokens_wanted(self, request: Request) -> int:
        """Return the tokens that the request may generate, and leave its prompt out."""
        return request.sampling.max_tokens


BY_PRIORITY = edition("labengine", "priority")
REPORTED = Column(
    "length 0",
    Parts(name="labengine, preempting to admit, prompt left out", scheduler=CountsNoPrompt).overriding(BY_PRIORITY),
    "Wants room for the answer alone, because the prompt's length is set after the sum is made.",
)
FIXED = Column(
    "prompt counted",
    Parts(name="labengine, preempting to admit", scheduler=PreemptsToAdmit).overriding(BY_PRIORITY),
    "Wants room for prompt and answer, and preempts no request if that cannot be had.",
)


def num_preempted_in_vain(lab: Lab) -> int:
    """Return the preemptions of steps that admitted no request: nobody got on by them."""
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
    """A is urgent and holds most of the pool, B is not and holds little; C is urgent, and does not fit beside A."""

    id = "sglang-28282"
    title = "A request is preempted, and the one for which it gave way still does not fit"
    report = Report(
        repository="sgl-project/sglang",
        kind="pull request",
        number="28282",
        title="Fix priority-preemption budget dropping prompt tokens for fresh requests",
        state="closed",
        as_of="2026-06-15",
        seen_in="0.5.13, as its code reads",
        needs=(
            "--enable-priority-scheduling",
            "a running batch that is full, and a request that comes in and is more urgent",
            "no hierarchical cache with storage: its prefetch sets the length before",
        ),
    )
    claim = (
        "The sum of what a preemption has to free reads a length that is still 0 for a new request: the prompt is left "
        "out, victims fall although what they free does not suffice, or too few of them fall."
    )
    conclusion = Conclusion(
        answer="holds in part",
        reason=(
            "Read in the code of 0.5.13, and not run: the sum is made before the length is set. In 0.5.23 the sum "
            "measures an array in place of the length, and this array is filled at the same later place. What a "
            "step costs by it was not measured."
        ),
        passages=(
            CodePassage(
                version="sglang 0.5.13",
                file="sglang/srt/managers/schedule_policy.py",
                line=1055,
                text="req.extend_input_len",
                says="The sum begins with the request's length, which a new request has as 0.",
            ),
            CodePassage(
                version="sglang 0.5.13",
                file="sglang/srt/managers/scheduler.py",
                line=2674,
                text="or not adder.preempt_to_schedule(req, self.server_args)",
                says="The preemption is decided here.",
            ),
            CodePassage(
                version="sglang 0.5.13",
                file="sglang/srt/managers/scheduler.py",
                line=2688,
                text="req.init_next_round_input(self.tree_cache)",
                says="The length is set here, below.",
            ),
            CodePassage(
                version="sglang 0.5.23",
                file="sglang/srt/managers/schedule_policy.py",
                line=1737,
                text="len(req.full_untruncated_fill_ids)",
                says="A later sum measures the array of the request's tokens, which begins empty.",
            ),
            ThreadPassage(
                source="sgl-project/sglang 28282",
                says="A new request and a retracted one have the length 0 when the sum is made.",
            ),
        ),
    )
    kind = "preemption"
    breaks = "B loses its blocks and its place, and no request gets on by it."
    wrong_figure = "requests preempted in vain"
    why_unseen = "Every state is consistent: a preemption in vain only costs time, and tokens that are computed again."
    question = "C does not fit, with B's blocks or without: who gives way?"
    columns = (REPORTED, FIXED)
    settings = settings(num_blocks=8, block_size=4, policy="priority")
    roles = ("the bug: the prompt left out", "the fix: the prompt counted")
    guide = (
        GuideStop(
            "A, which is urgent, holds five blocks of eight; B, which is not, holds two.",
            StepEnded,
        ),
        GuideStop(
            "C is urgent too, and its prompt alone needs four blocks. One is free, and B could give two: that is not "
            "enough.",
            RequestAdded,
            lambda event: event.request_id == 2,
        ),
        GuideStop(
            "Left, the sum has no prompt in it: two tokens of an answer would fit, so B has to go. C is not admitted.",
            RequestPreempted,
        ),
        GuideStop(
            "Right, B goes on beside A, and C waits for A's end. Left, B waits behind C.",
            StepEnded,
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Run A (17 tokens) and B (6 tokens, less urgent); then add C (16 tokens), and run all to their ends."""
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

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the preemption after which C still does not fit."""
        moment = moment_of(lab, RequestPreempted)
        text = "B gives its two blocks back for C, which needs four: three are free then, and C goes on waiting."
        return None if moment is None else wrong_at(lab, moment, text)

    def answer(self, table: Table) -> str:
        """State what the preemption in vain costs."""
        wrong, right = (table[column.name] for column in self.columns)
        return (
            f"B gives way, and C waits as before: B ends in step {wrong['step in which B ends']}, and "
            f"{wrong['tokens computed']} tokens are computed; with the prompt counted in step "
            f"{right['step in which B ends']}, with {right['tokens computed']}."
        )


SCENARIO = PromptNotCounted()
