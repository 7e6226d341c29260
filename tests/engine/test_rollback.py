"""A step that does not reach its end never happened: whatever ended it, wherever, with or without listeners.

Every run stands on a memory that checks each read, so a block that was overwritten and is still trusted is found out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from random import Random

import pytest

from disturbing import (
    Countdown,
    Disturbance,
    Point,
    core_calls,
    core_returns,
    forgetting,
    overwritten_victims,
    queues,
    raise_at_event,
    raise_disturbance,
)
from driving import ALL_EDITIONS, Drive, assert_sound, difference, recorded, tokens_of
from labengine.core.step_plan import StepPlan
from labengine.events import StepRolledBack
from labengine.fold import fold
from labengine.hooks import Hooks
from workloads import Workload, random_workload

SEEDS = range(40)


@pytest.fixture(params=ALL_EDITIONS)
def edition(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@dataclass
class Failed:
    """A step that was made to fail: the plan whose forward pass had begun."""

    plan: StepPlan
    num_overwritten: int


def fail_step(drive: Drive, error: type[BaseException], step: Callable[[], object]) -> Failed | None:
    """Take a step that should fail, and check that it left no trace; None when it did not fail."""
    engine = drive.engine
    before, queues_before, report_before = engine.snapshot(), queues(engine), engine.report
    drive.runner.plan = StepPlan(())
    try:
        step()
    except error:
        pass
    else:
        return None
    plan = drive.runner.plan
    victims = overwritten_victims(before, plan)
    assert engine.report is report_before
    assert tokens_of(engine.snapshot()) == tokens_of(before)
    if not victims:
        assert difference(engine.snapshot(), forgetting(before, plan)) is None
        assert queues(engine) == queues_before
    for victim in victims:
        assert engine.snapshot().requests[victim].status == "preempted"
    assert_sound(engine.snapshot())
    return Failed(plan, len(victims))


def assert_same_end(drive: Drive, workload: Workload, edition: str) -> None:
    """The tokens of an undisturbed run (an aborted request has the first of them), and nothing held."""
    undisturbed = tokens_of(Drive(workload, edition).run().snapshot())
    for request_id, tokens in tokens_of(drive.engine.snapshot()).items():
        is_aborted = drive.engine.requests[request_id].finish_reason == "abort"
        assert tokens == (undisturbed[request_id][: len(tokens)] if is_aborted else undisturbed[request_id])
    assert_sound(drive.engine.snapshot())
    assert len(drive.engine.snapshot().free_queue) == workload.num_blocks


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("is_recorded", [True, False])
def test_forward_fails_after_writing_some_tokens(edition: str, is_recorded: bool, error: type[BaseException]) -> None:
    num_failed = num_overwritten = 0
    for seed in SEEDS:
        rng, workload, hooks = Random(seed), random_workload(seed), Hooks(strict=True)
        events = recorded(hooks) if is_recorded else []
        drive = Drive(workload, edition, hooks)
        while not drive.is_done:
            list(drive.arrive())
            if rng.random() < 0.4:
                drive.runner.fail_in_forward, drive.runner.num_writes_before = error(), rng.choice((0, 1, 3, 1000))
                failed = fail_step(drive, error, drive.engine.step)
                num_failed += failed is not None
                num_overwritten += failed.num_overwritten if failed else 0
                if failed and rng.random() < 0.3:  # the next step differs: nobody is preempted again by chance
                    drive.engine.abort(rng.choice(list(drive.engine.requests)))
                assert not is_recorded or difference(fold(events), drive.engine.snapshot()) is None
            drive.runner.fail_in_forward = None
            drive.engine.step()
        assert_same_end(drive, workload, edition)
    assert num_failed > 200
    assert num_overwritten > 0, "no failed step had given a victim's blocks away"


def test_sampling_fails(edition: str) -> None:
    num_failed = 0
    for seed in SEEDS:
        rng, workload = Random(seed), random_workload(seed)
        drive = Drive(workload, edition)
        while not drive.is_done:
            list(drive.arrive())
            if rng.random() < 0.4:
                drive.runner.fail_in_sample = ValueError("no token")
                num_failed += fail_step(drive, ValueError, drive.engine.step) is not None
                drive.runner.fail_in_sample = None
            drive.engine.step()
        assert_same_end(drive, workload, edition)
    assert num_failed > 200


@pytest.mark.parametrize("point", [core_calls, core_returns])
def test_core_raises_anywhere_in_schedule_or_update(edition: str, point: Point) -> None:
    num_failed = 0
    for seed in range(12):
        rng, workload = Random(seed), random_workload(seed)
        drive = Drive(workload, edition, Hooks())
        while not drive.is_done:
            list(drive.arrive())
            countdown = Countdown(point, rng.randrange(150), raise_disturbance)
            if fail_step(drive, Disturbance, partial(countdown.run, drive.engine.step)) is not None:
                num_failed += 1
                drive.engine.step()
        assert_same_end(drive, workload, edition)
    assert num_failed > 100


def test_every_call_and_return_of_one_busy_step(edition: str) -> None:
    """Exhaustively: the first step that preempts, failed at every point the core passes."""
    for point in (core_calls, core_returns):
        scout = Countdown(point)
        assert scout.run(_before_preemption(edition).engine.step).preempted
        assert scout.num_passed > 50
        for n in range(scout.num_passed):
            drive = _before_preemption(edition)
            countdown = Countdown(point, n, raise_disturbance)
            assert fail_step(drive, Disturbance, partial(countdown.run, drive.engine.step)) is not None
            drive.engine.step()
            assert_sound(drive.engine.snapshot())


def _before_preemption(edition: str) -> Drive:
    """A run halted before its first step that preempts."""
    seed, num_steps = _first_preemption(edition)
    drive = Drive(random_workload(seed), edition, Hooks())
    for _ in range(num_steps):
        list(drive.arrive())
        drive.engine.step()
    list(drive.arrive())
    return drive


@cache
def _first_preemption(edition: str) -> tuple[int, int]:
    """(seed, steps before it)."""
    for seed in SEEDS:
        drive = Drive(random_workload(seed), edition)
        num_steps = 0
        while not drive.is_done:
            list(drive.arrive())
            if drive.engine.step().preempted:
                return seed, num_steps
            num_steps += 1
    raise AssertionError("no workload preempts")


def test_a_strict_listener_raises_at_any_event(edition: str) -> None:
    num_failed = 0
    for seed in SEEDS:
        rng, workload, hooks = Random(seed), random_workload(seed), Hooks(strict=True)
        events = recorded(hooks)
        drive = Drive(workload, edition, hooks)
        while not drive.is_done:
            list(drive.arrive())
            raising = raise_at_event(hooks, rng.randrange(40))
            failed = fail_step(drive, Disturbance, drive.engine.step)
            raising.close()
            assert difference(fold(events), drive.engine.snapshot()) is None
            if failed is not None:
                num_failed += 1
                drive.engine.step()
        assert_same_end(drive, workload, edition)
    assert num_failed > 200


def test_rollback_is_told_with_the_error_that_caused_it() -> None:
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    drive = Drive(random_workload(0), "labengine", hooks)
    list(drive.arrive())
    drive.runner.fail_in_forward = MemoryError()
    with pytest.raises(MemoryError):
        drive.engine.step()
    assert [event for event in events if isinstance(event, StepRolledBack)] == [StepRolledBack(1, "MemoryError")]
    assert drive.engine.step().step == 1
