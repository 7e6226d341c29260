"""A rolled-back step leaves the requests in the order in which they waited and ran; see check/queues.py."""

from __future__ import annotations

import re

import pytest

from check.watched import Watched, watched
from driving import as_parts
from labengine import events as ev
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.step_plan import StepPlan
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.core.waiting_queue import WaitingQueue


class PlaceTooHigh(WaitingQueue):
    """Says that a request stood one place further back than it did."""

    def remove_request(self, request: Request) -> int:
        return super().remove_request(request) + 1


class SortedUnnoticed(TokenBudgetScheduler):
    """Runs the request with the shortest prompt first, and notes no inverse."""

    def schedule(self) -> StepPlan:
        self.running.sort(key=lambda request: request.num_prompt_tokens)
        return super().schedule()


def broken_off(parts: Parts | str) -> Watched:
    """Two requests run and three wait, for there are two seats; then a step begins and is closed."""
    setup = watched(16, edition=parts, max_num_seqs=2)
    for number, length in enumerate((6, 3, 4, 4, 4)):
        setup.add(*range(100 * number, 100 * number + length), max_tokens=9)
    setup.steps(1)
    return setup


def close_a_step(setup: Watched) -> None:
    phases = setup.engine.phases()
    next(phases)
    phases.close()


@pytest.mark.parametrize("edition", ["labengine", "vllm", "nano-vllm"])
def test_an_edition_restores_both_orders(edition: str) -> None:
    setup = broken_off(edition)
    close_a_step(setup)
    setup.engine.abort(0)
    close_a_step(setup)
    assert setup.watch.violations == []


def test_requests_that_wait_in_another_order_after_a_rollback_are_named() -> None:
    setup = broken_off(Parts(waiting_queue=PlaceTooHigh).overriding(as_parts("labengine")))
    setup.engine.abort(0)
    close_a_step(setup)
    [found] = setup.watch.violations
    assert (found.rule, found.request_ids) == ("journal", (2, 3))
    assert re.search(r"2, 3, 4 waiting.* 3, 2, 4 waiting \(PlaceTooHigh\.remove_request\)$", found.message)
    assert isinstance(setup.first_event("journal"), ev.StepRolledBack)


def test_requests_that_run_in_another_order_after_a_rollback_are_named() -> None:
    setup = broken_off(Parts(scheduler=SortedUnnoticed).overriding(as_parts("labengine")))
    close_a_step(setup)
    [found] = setup.watch.violations
    assert re.search(r"0, 1 running.* 1, 0 running \(SortedUnnoticed\.schedule\)$", found.message)
