"""A step that does not reach its end never happened: whatever ended it, wherever, with or without listeners.

Every run uses a memory that checks each read, so a block that was overwritten and is still trusted is detected.
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
    ListenerFailed,
    Point,
    core_calls,
    core_returns,
    forgetting,
    overwritten_victims,
    raise_at_event,
    raise_disturbance,
    unnumbered,
)
from driving import Drive, LiveFold, assert_drained, assert_sound, difference, queues, recorded, tokens_of
from grounds import ALL_GROUNDS, PREEMPTING_GROUNDS, Ground, at_every_change
from labengine.core.step_plan import StepPlan
from labengine.events import Event, NodeEvicted, RequestPreempted, StepRolledBack
from labengine.record.fold import fold
from labengine.record.hooks import Hooks
from seeds import EVERY_SEED, moments

LABENGINE = Ground("labengine")


@pytest.fixture(params=at_every_change(ALL_GROUNDS), ids=str)
def ground(request: pytest.FixtureRequest) -> Ground:
    return request.param  # type: ignore[no-any-return]


@dataclass
class Failed:
    """A step that was made to fail: the plan whose loads or forward pass had begun."""

    plan: StepPlan
    num_overwritten: int


def fail_step(drive: Drive, error: type[BaseException], step: Callable[[], object]) -> Failed | None:
    """Take a step that should fail, and check that it left no trace; None when it did not fail."""
    engine = drive.engine
    before, queues_before, report_before = engine.snapshot(), queues(engine), engine.report
    drive.runner.plan = engine._written = StepPlan(())
    try:
        step()
    except error:
        pass
    else:
        return None
    plan = engine._written if drive.connector else drive.runner.plan
    victims = overwritten_victims(before, plan)
    assert engine.report is report_before
    assert tokens_of(engine.snapshot()) == tokens_of(before)
    if not victims:
        pool = engine.scheduler.manager.pool
        assert difference(unnumbered(engine.snapshot()), unnumbered(forgetting(before, plan, pool))) is None
        assert queues(engine) == queues_before
    for victim in victims:
        assert engine.snapshot().requests[victim].status == "preempted"
    assert_sound(engine.snapshot(), engine.parts.name)
    return Failed(plan, len(victims))


def assert_same_end(drive: Drive, ground: Ground, seed: int) -> None:
    """The tokens of an undisturbed run (an aborted request has the first of them), and nothing held.

    The beams of an aborted search have the tokens of some moment: others may have replaced them later.
    """
    undisturbed = ground.undisturbed(seed)
    for request_id, tokens in tokens_of(drive.engine.snapshot()).items():
        request = drive.engine.requests[request_id]
        is_aborted = request.finish_reason == "abort"
        if is_aborted and request.sampling.beams > 1:
            continue
        assert tokens == (undisturbed[request_id][: len(tokens)] if is_aborted else undisturbed[request_id])
    assert_drained(drive.engine)


@pytest.mark.parametrize(("is_recorded", "error"), [(True, RuntimeError), (False, KeyboardInterrupt)])
def test_forward_fails_after_writing_some_tokens(ground: Ground, is_recorded: bool, error: type[BaseException]) -> None:
    num_failed = num_overwritten = 0
    for seed in ground.busy_seeds(40):
        rng, hooks = Random(seed), Hooks(strict=True)
        events = recorded(hooks) if is_recorded else []
        drive = ground.drive(seed, hooks)
        while not drive.is_done:
            list(drive.arrive())
            if rng.random() < 0.8:
                drive.runner.fail_in_forward, drive.runner.num_writes_before = error(), rng.choice((0, 1, 3, 1000))
                failed = fail_step(drive, error, drive.engine.step)
                num_failed += failed is not None
                num_overwritten += failed.num_overwritten if failed else 0
                if failed and rng.random() < 0.3:  # the next step differs: nobody is preempted again by chance
                    drive.engine.abort(rng.choice(list(drive.engine.requests)))
                assert not is_recorded or difference(fold(events), drive.engine.snapshot()) is None
            drive.runner.fail_in_forward = None
            drive.engine.step()
        assert_same_end(drive, ground, seed)
    assert num_failed > 5 * len(ground.busy_seeds(40))
    assert num_overwritten > 0 or ground not in PREEMPTING_GROUNDS, "no failed step had given a victim's blocks away"


def test_sampling_fails(ground: Ground) -> None:
    num_failed = 0
    for seed in ground.busy_seeds(40):
        rng = Random(seed)
        drive = ground.drive(seed)
        while not drive.is_done:
            list(drive.arrive())
            if rng.random() < 0.4:
                drive.runner.fail_in_sample = ValueError("no token")
                num_failed += fail_step(drive, ValueError, drive.engine.step) is not None
                drive.runner.fail_in_sample = None
            drive.engine.step()
        assert_same_end(drive, ground, seed)
    assert num_failed > 5 * len(ground.busy_seeds(40))


@pytest.mark.parametrize("point", [core_calls, core_returns])
def test_core_raises_anywhere_in_schedule_or_update(ground: Ground, point: Point) -> None:
    num_failed = 0
    for seed in ground.busy_seeds(12 if not ground.is_hybrid else 24):
        rng = Random(seed)
        drive = ground.drive(seed, Hooks())
        while not drive.is_done:
            list(drive.arrive())
            countdown = Countdown(point, rng.randrange(150), raise_disturbance)
            if fail_step(drive, Disturbance, partial(countdown.run, drive.engine.step)) is not None:
                num_failed += 1
                drive.engine.step()
        assert_same_end(drive, ground, seed)
    assert num_failed > (100 if EVERY_SEED else 30)


def test_every_call_and_return_of_one_busy_step(ground: Ground) -> None:
    """The first step that preempts, or else evicts, failed at points that the core passes."""
    for point in (core_calls, core_returns):
        scout = Countdown(point)
        assert scout.run(_before_busy_step(ground).engine.step)
        assert scout.num_passed > 50
        for n in moments(scout.num_passed, 25):
            drive = _before_busy_step(ground)
            countdown = Countdown(point, n, raise_disturbance)
            assert fail_step(drive, Disturbance, partial(countdown.run, drive.engine.step)) is not None
            drive.engine.step()
            assert_sound(drive.engine.snapshot(), drive.engine.parts.name)


def _before_busy_step(ground: Ground) -> Drive:
    """A run halted before its first busy step."""
    seed, num_steps = _first_busy_step(ground)
    drive = ground.drive(seed, Hooks())
    for _ in range(num_steps):
        list(drive.arrive())
        drive.engine.step()
    list(drive.arrive())
    return drive


@cache
def _first_busy_step(ground: Ground) -> tuple[int, int]:
    """(seed, steps before it)."""
    wanted = RequestPreempted if ground in PREEMPTING_GROUNDS else NodeEvicted
    for seed in ground.busy_seeds(40):
        met, hooks, num_steps = list[Event](), Hooks(strict=True), 0
        hooks.subscribe(met.append, wanted)
        drive = ground.drive(seed, hooks)
        while not drive.is_done:
            list(drive.arrive())
            drive.engine.step()
            if met:
                return seed, num_steps
            num_steps += 1
    raise AssertionError("no workload has a busy step")


def test_a_strict_listener_raises_at_any_event(ground: Ground) -> None:
    num_failed = 0
    for seed in ground.busy_seeds(40):
        rng, hooks = Random(seed), Hooks(strict=True)
        live = LiveFold(hooks)
        drive = ground.drive(seed, hooks)
        while not drive.is_done:
            list(drive.arrive())
            raising = raise_at_event(hooks, rng.randrange(40))
            failed = fail_step(drive, ListenerFailed, drive.engine.step)
            raising.close()
            assert difference(live.state.snapshot(), drive.engine.snapshot()) is None
            if failed is not None:
                num_failed += 1
                drive.engine.step()
        assert_same_end(drive, ground, seed)
    assert num_failed > 5 * len(ground.busy_seeds(40))


def test_rollback_is_reported_with_the_error_that_caused_it() -> None:
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    drive = LABENGINE.drive(0, hooks)
    list(drive.arrive())
    drive.runner.fail_in_forward = MemoryError()
    with pytest.raises(MemoryError):
        drive.engine.step()
    assert [event for event in events if isinstance(event, StepRolledBack)] == [StepRolledBack(1, "MemoryError")]
    assert drive.engine.step().step == 1
