"""Why? about the newest step: one that failed, one under way, one rolled back, and one without a token of a request."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import labengine
from labengine import Lab, Parts
from labengine import events as ev
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.kv_cache_group import NotGrantedError
from labengine.core.nano_vllm.scheduler import PrefillFirstScheduler
from labengine.core.request import Request
from labengine.core.step_plan import StepPlan
from labengine.core.token_budget import TokenBudgetScheduler
from labengine_widgets.why import Why
from widgets.why.why_runs import Run, kinds


class HitsAreFree(FullAttentionGroup):
    """ROCm ATOM 902: charges no hit at admission."""

    def num_blocks_to_admit(self, hit: Sequence[int], num_computed_tokens: int, num_blocks: int) -> int:
        return num_blocks - len(hit)


def crashed(edition: str) -> Lab:
    """C is admitted with two hits on free blocks, and a block that it takes is not free."""
    lab = Lab("simulated", num_blocks=4, block_size=4, edition=edition, parts=Parts(full_attention_group=HitsAreFree))
    lab.generate([range(8)], max_tokens=1)
    lab.add(token_ids=[50, 51, 52], max_tokens=9)
    lab.step()
    lab.add(token_ids=[*range(8), *range(90, 98)], max_tokens=1)
    lab.add(token_ids=[70, 71], max_tokens=1)
    with pytest.raises(NotGrantedError), pytest.warns(UserWarning, match="granted"):
        lab.step()
    return lab


@pytest.mark.parametrize("edition", ["nano-vllm", "labengine"])
def test_a_crash_is_told_as_such_and_not_as_a_step_that_computed(edition: str) -> None:
    with crashed(edition) as lab:
        assert lab.crash is not None
        lab.goto("crash")
        reply = lab.why(request="C", about="waiting")
        assert "Step 3 failed" in reply.answer
        assert "C was being scheduled in it (NotGrantedError in " in reply.answer
        assert "computed" not in reply.answer.partition("The rule")[0] and "chunks" not in reply.answer
        assert "The rule “granted” is broken" in reply.answer
        behind = lab.why(request="D")
        assert "not reached D (" in behind.answer and "computed" not in behind.answer
        running = lab.why(request="B", about="token")
        assert "Step 3 failed" in running.answer
        last = [link.event_number for link in reply.links]
        assert any(isinstance(lab.timeline.events(n, n + 1)[0], ev.StepFailed) for n in last if n is not None)  # type: ignore[union-attr]


def test_a_step_that_was_rolled_back_has_begun_all_the_same() -> None:
    with crashed("labengine") as lab:
        reply = lab.why(request="D")
        assert "No step has ended since it joined the waiting queue: step 3 was rolled back" in reply.answer


def test_a_step_under_way_has_computed_nothing_yet() -> None:
    run = Run(num_blocks=8)
    run.add(range(9), 2), run.add(range(100, 109), 2), run.add(range(200, 209), 2)
    run.engine.step()
    scheduled = [n for n, event in enumerate(run.timeline.events()) if isinstance(event, ev.RequestScheduled)]
    under_way = run.why(request=2, moment=scheduled[0] + 1)
    assert under_way.answer == "Step 1 is still being scheduled and has taken A so far."
    admitted = run.why(request=1, about="waiting", moment=scheduled[0] + 3)
    assert "chunks" not in admitted.answer and "still being scheduled" in admitted.answer
    assert "Step 1 computed 18 tokens of A and B" in run.why(request=2).answer


class LeavesOneOut(TokenBudgetScheduler):
    """Passes B over."""

    def num_plannable(self, request: Request) -> int:
        return 0 if request.request_id == 1 and request.num_generated_tokens else super().num_plannable(request)


def no_token(run: Run, request: int) -> Why:
    reply = run.why(request=request, about="token")
    assert reply.question.startswith(f"Why does {'ABC'[request]} get no token")
    return reply


def test_a_running_request_that_is_passed_over() -> None:
    run = Run(num_blocks=8, edition=Parts(scheduler=LeavesOneOut).overriding(labengine.core.editions.LABENGINE))
    for first in (0, 100, 200):
        run.add(range(first, first + 3), 5)
    run.engine.step(), run.engine.step()
    reply = no_token(run, 1)
    assert reply == run.why(request=1), "it is the likeliest question then"
    assert reply.answer.startswith("Step 2 computed 2 tokens of A and C, and none of B.")
    assert "fits into its blocks" in reply.answer and "passed B over" in reply.answer
    assert kinds(run.timeline, reply) == ["StepStarted", "RequestScheduled", "RequestScheduled"]
    assert "step 2 computed tokens of it." in no_token(run, 0).answer


def test_a_prefill_step_of_nano_vllm_says_so() -> None:
    run = Run(num_blocks=12, edition="nano-vllm")
    run.add(range(3), 5)
    run.engine.step()
    run.add(range(100, 103), 5)
    run.engine.step()
    assert no_token(run, 0).answer.endswith("this step computed only prompts.")


def test_a_request_behind_one_that_gave_way() -> None:
    class PreemptsItself(TokenBudgetScheduler):
        def choose_victim(self, request: Request) -> Request:
            return request

    run = Run(num_blocks=3, edition=Parts(scheduler=PreemptsItself).overriding(labengine.core.editions.LABENGINE))
    run.add(range(4), 5), run.add(range(100, 104), 5), run.add(range(200, 202), 5)
    run.engine.step(), run.engine.step()
    assert no_token(run, 2).answer.endswith(
        "The step ended when A lacked a block and gave way itself; C came after it."
    )


class DecodesNothing(PrefillFirstScheduler):
    """Leaves all running requests out."""

    def _schedule_decode(self) -> StepPlan:
        return StepPlan(())


def test_a_step_that_schedules_no_request() -> None:
    run = Run(num_blocks=8, edition=Parts(scheduler=DecodesNothing).overriding(labengine.core.editions.NANO_VLLM))
    run.add(range(3), 5)
    run.engine.step(), run.engine.step()
    assert no_token(run, 0).answer.startswith("No request was scheduled in step 2. Its next token ")
