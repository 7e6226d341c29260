"""Scheduler.skips: requests that a step skips keep their places, also after a rollback; vllm-async needs it there."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from labengine import Lab, Parts
from labengine.config import EngineConfig, GroupSpec, SamplingParams
from labengine.core.editions import VLLM_ASYNC
from labengine.core.request import Request
from labengine.core.step_plan import StepPlan
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.engine.engine import Engine
from labengine.engine.request_options import RequestOptions
from labengine.engine.simulated import SimulatedRunner, default_next_token
from labengine.record.hooks import Hooks


class SkipsEvenOnes(TokenBudgetScheduler):
    """Skips the requests of even ids in its first two looks at each."""

    def skips(self, request: Request, skipped: Sequence[Request]) -> bool:
        seen.append((request.request_id, [other.request_id for other in skipped]))
        return request.request_id % 2 == 0 and [number for number, _ in seen].count(request.request_id) <= 2


seen: list[tuple[int, list[int]]] = []


@pytest.fixture
def lab() -> Lab:
    seen.clear()
    lab = Lab("simulated", num_blocks=32, block_size=4, parts=Parts(scheduler=SkipsEvenOnes))
    for number in range(5):
        lab.add(token_ids=range(10 * number, 10 * number + 5), max_tokens=3)
    return lab


def waiting(lab: Lab) -> list[int]:
    return [request.request_id for request in lab.session.stepper.engine.scheduler.waiting]


def test_those_behind_a_skipped_request_are_admitted_and_it_keeps_its_place(lab: Lab) -> None:
    assert sorted(lab.step().scheduled) == [1, 3]
    assert seen == [(0, []), (1, [0]), (2, [0]), (3, [0, 2]), (4, [0, 2])]
    assert waiting(lab) == [0, 2, 4]
    assert sorted(lab.step().scheduled) == [1, 3]
    assert sorted(lab.step().scheduled) == [0, 1, 2, 3, 4]
    lab.run()
    assert lab.violations == []


def test_a_step_that_is_rolled_back_has_skipped_nothing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(lab.session.model.runner, "forward", fails)
        with pytest.raises(OSError, match="gone"):
            lab.step()
    assert waiting(lab) == [0, 1, 2, 3, 4]


def test_nothing_is_skipped_in_production() -> None:
    lab = Lab("simulated", num_blocks=32, block_size=4)
    for number in range(3):
        lab.add(token_ids=range(10 * number, 10 * number + 5), max_tokens=3)
    assert sorted(lab.step().scheduled) == [0, 1, 2]


class FailsOnce(SimulatedRunner):
    """Fails in the forward pass of one step. at: its number, from 1."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.num_left = at

    def forward(self, plan: StepPlan) -> object:
        self.num_left -= 1
        if not self.num_left:
            raise OSError("gone")
        return super().forward(plan)


@pytest.mark.parametrize("at", range(1, 7))
def test_a_token_under_way_is_not_sampled_again_after_a_rollback(at: int) -> None:
    """The step overwrote the request's state: it is preempted while the token of the step before is not booked."""
    config = EngineConfig(16, (GroupSpec(2), GroupSpec(4, "state")))
    engine = Engine(config, FailsOnce(at), VLLM_ASYNC, Hooks(strict=True))
    engine.queue(engine.maker.request(0, [7, 8, 9], RequestOptions(SamplingParams(5, ignore_eos=True))))
    num_failed = 0
    while not engine.scheduler.is_idle:
        try:
            engine.step()
        except OSError:
            num_failed += 1
    assert num_failed == 1
    assert engine.requests[0].token_ids[3:] == [default_next_token(0, position) for position in range(3, 8)]
