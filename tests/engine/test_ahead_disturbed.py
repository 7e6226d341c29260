"""A free step disturbed by an error, or by Ctrl-C at any moment: it has happened completely or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from ctrl_c import press_ctrl_c
from disturbing import (
    Countdown,
    Disturbance,
    Point,
    SignalPoints,
    core_calls,
    core_returns,
    forgetting,
    overwritten_victims,
    raise_disturbance,
    unnumbered,
)
from driving import Drive, assert_drained, assert_sound, difference, recorded, tokens_of
from engine.twins import BUSY_SEED, GROUNDS, CountingEngine
from grounds import Ground, at_every_change
from labengine.core.step_plan import StepPlan
from labengine.events import Event
from labengine.record.fold import fold
from labengine.record.hooks import Hooks
from seeds import moments


def free_steps(ground: Ground, seed: int) -> tuple[Drive, list[Event]]:
    """A drive that is ahead, and its events: their fold is the state as one may know it without looking."""
    hooks = Hooks()
    events = recorded(hooks)
    return Drive(ground.workload(seed), ground.edition, hooks, engine_class=CountingEngine), events


def fail_free_step(drive: Drive, events: list[Event], run: Callable[[Callable[[], object]], object]) -> bool:
    """A step that is disturbed: it happened, or left no trace but in memory. True if it was rolled back."""
    before, engine = fold(events), drive.engine
    engine._written = StepPlan(())
    with suppress(Disturbance, KeyboardInterrupt):
        run(engine.step)
    after = fold(events)
    if after.step > before.step:
        return False
    plan, pool = engine._written, engine.scheduler.manager.pool
    if not overwritten_victims(before, plan):
        assert (
            difference(after, before) is None
            or difference(unnumbered(after), unnumbered(forgetting(before, plan, pool))) is None
        )
    return True


@pytest.mark.parametrize(
    ("point", "num_points", "act"),
    [
        (core_calls, 150, raise_disturbance),
        (core_returns, 150, raise_disturbance),
        (SignalPoints(), 500, press_ctrl_c),
    ],
    ids=["calls", "returns", "ctrl-c"],
)
@pytest.mark.parametrize("ground", at_every_change(GROUNDS), ids=str)
def test_a_free_step_happens_completely_or_not_at_all(
    ground: Ground, point: Point, num_points: int, act: Callable[[], None]
) -> None:
    """Do not look after every other disturbed step, so that the next step builds on the remaining work."""
    num_taken_back, met = 0, Counter[str]()
    for seed in ground.busy_seeds(16):
        rng = Random(seed)
        drive, events = free_steps(ground, seed)
        while not drive.is_done:
            list(drive.arrive())
            drive.engine.step()
            countdown = Countdown(point, rng.randrange(num_points), act)
            num_taken_back += fail_free_step(drive, events, countdown.run)
            if rng.random() < 0.5:
                assert difference(fold(events), drive.engine.snapshot()) is None
                assert_sound(drive.engine.snapshot(), ground.edition)
            drive.engine.step()
        assert tokens_of(drive.engine.snapshot()) == ground.undisturbed(seed)
        assert_drained(drive.engine)
        assert isinstance(drive.engine, CountingEngine)
        met += drive.engine.met
    assert num_taken_back > 40
    assert met["used"] > 100


def test_ctrl_c_at_every_moment_of_one_free_step() -> None:
    """The third step, which uses what the second has scheduled, and schedules the fourth."""
    scout = Countdown(SignalPoints())
    drive, _ = third_step()
    assert scout.run(drive.engine.step)
    assert drive.engine.met["used"] == 2  # type: ignore[attr-defined]
    outcomes: Counter[bool] = Counter()
    for n in moments(scout.num_passed, 100):
        drive, events = third_step()
        outcomes[fail_free_step(drive, events, Countdown(SignalPoints(), n, press_ctrl_c).run)] += 1
        while not drive.is_done:
            list(drive.arrive())
            drive.engine.step()
        assert tokens_of(drive.engine.snapshot()) == GROUNDS[0].undisturbed(BUSY_SEED), f"at {n} of {scout.num_passed}"
        assert difference(fold(events), drive.engine.snapshot()) is None
        assert_drained(drive.engine)
    assert outcomes[True] > 0.9 * outcomes.total()


def third_step() -> tuple[Drive, list[Event]]:
    drive, events = free_steps(GROUNDS[0], BUSY_SEED)
    for _ in range(2):
        list(drive.arrive())
        drive.engine.step()
    return drive, events
