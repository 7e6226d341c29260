"""TokenBudgetScheduler.skips: requests that a step skips keep their places, also after a rollback."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from labengine import Lab, Parts
from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler


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
