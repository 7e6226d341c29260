"""Ctrl-C, as a real signal on the main thread, at any moment of a step: it happened completely or not at all."""

from __future__ import annotations

import signal
import threading
from random import Random

import pytest

from ctrl_c import press_ctrl_c
from disturbing import Countdown, SignalPoints, forgetting, overwritten_victims, unnumbered
from driving import Drive, assert_drained, assert_sound, difference, queues, recorded, tokens_of
from grounds import ALL_GROUNDS, Ground, at_every_change
from labengine.core.step_plan import StepPlan
from labengine.engine.engine import Engine
from labengine.engine.interrupts import interrupts_deferred
from labengine.record.fold import fold
from labengine.record.hooks import Hooks
from labengine.record.snapshot import Snapshot
from seeds import moments


def test_interrupt_waits_for_the_end_of_the_block() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), interrupts_deferred():
        press_ctrl_c()
        reached.append("after the signal")
    assert reached == ["after the signal"]


def test_no_interrupt_no_trace() -> None:
    handler = signal.getsignal(signal.SIGINT)
    with interrupts_deferred():
        assert signal.getsignal(signal.SIGINT) is not handler
    assert signal.getsignal(signal.SIGINT) is handler


def test_second_interrupt_gets_through() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), interrupts_deferred():
        press_ctrl_c()
        reached.append("first")
        press_ctrl_c()
        reached.append("second")
    assert reached == ["first"]


def test_nested_blocks_hold_until_the_outer_end() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), interrupts_deferred():
        with interrupts_deferred():
            press_ctrl_c()
        reached.append("inner ended")
    assert reached == ["inner ended"]


def test_an_error_in_the_block_is_raised_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError), interrupts_deferred():
        press_ctrl_c()
        raise ZeroDivisionError


def test_ignored_interrupts_stay_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interrupts_deferred():
        press_ctrl_c()
    assert signal.signal(signal.SIGINT, before) is signal.SIG_IGN


def test_other_threads_are_let_be() -> None:
    seen = []

    def work() -> None:
        with interrupts_deferred():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


@pytest.mark.parametrize("ground", at_every_change(ALL_GROUNDS), ids=str)
def test_ctrl_c_at_random_moments_of_a_step(ground: Ground) -> None:
    """Four steps out of ten are interrupted somewhere: in core, engine, tier, hooks or the context managers between."""
    outcomes = []
    for seed in ground.busy_seeds(16):
        rng, hooks = Random(seed), Hooks(strict=True)
        events = recorded(hooks)
        drive = ground.drive(seed, hooks)
        while not drive.is_done:
            list(drive.arrive())
            if rng.random() < 0.4:
                outcomes.append(interrupted_step(drive, rng.randrange(300)))
                assert difference(fold(events), drive.engine.snapshot()) is None
            drive.engine.step()
        assert tokens_of(drive.engine.snapshot()) == ground.undisturbed(seed)
        assert_drained(drive.engine)
    assert outcomes.count("rolled back") > 50


@pytest.mark.parametrize("ground", [Ground("labengine"), Ground("labengine", True, "prompt")], ids=str)
def test_ctrl_c_at_every_moment_of_one_step(ground: Ground) -> None:
    """The third step."""
    scout = Countdown(SignalPoints())
    assert scout.run(_third_step(ground).engine.step)
    outcomes = []
    for n in moments(scout.num_passed, 60):
        drive = _third_step(ground)
        outcomes.append(interrupted_step(drive, n))
        assert drive.engine.step()
    assert set(outcomes) <= {"rolled back", "completed"}
    assert outcomes.count("rolled back") > 0.8 * len(outcomes)


def _third_step(ground: Ground) -> Drive:
    drive = ground.drive(ground.busy_seeds(40)[0])
    for _ in range(2):
        list(drive.arrive())
        drive.engine.step()
    list(drive.arrive())
    return drive


def interrupted_step(drive: Drive, n: int) -> str:
    """Take a step with Ctrl-C at its n-th chance, and check that it happened completely or not at all."""
    engine = drive.engine
    before, queues_before = engine.snapshot(), queues(engine)
    engine._written = StepPlan(())
    try:
        Countdown(SignalPoints(), n, press_ctrl_c).run(engine.step)
    except KeyboardInterrupt:
        pass
    else:
        return "not interrupted"
    assert_sound(engine.snapshot(), engine.parts.name)
    if engine.step_number > before.step:
        assert engine.report.step == engine.step_number
        assert engine.report.loading or got_on(engine.snapshot()) != got_on(before)
        return "completed"
    assert_taken_back(before, engine)
    assert overwritten_victims(before, engine._written) or queues(engine) == queues_before
    return "rolled back"


def got_on(snapshot: Snapshot) -> dict[int, tuple[tuple[int, ...], int]]:
    """Per request its tokens, and how many are computed: a step may be one chunk of a prompt."""
    return {i: (request.token_ids, request.num_computed_tokens) for i, request in snapshot.requests.items()}


def assert_taken_back(before: Snapshot, engine: Engine) -> None:
    """As before; once the forward pass was about to begin, less what its plan writes to."""
    after, plan, pool = engine.snapshot(), engine._written, engine.scheduler.manager.pool
    if overwritten_victims(before, plan):
        assert tokens_of(after) == tokens_of(before)
    else:
        assert after == before or difference(unnumbered(after), unnumbered(forgetting(before, plan, pool))) is None


def test_ctrl_c_in_a_forward_pass() -> None:
    drive = Ground("labengine").drive(0)
    list(drive.arrive())
    before = drive.engine.snapshot()
    drive.runner.forward = press_ctrl_c  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        drive.engine.step()
    del drive.runner.forward
    assert difference(drive.engine.snapshot(), before) is None
    assert drive.engine.step().step == 1
