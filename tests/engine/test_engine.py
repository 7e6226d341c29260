"""The engine's front: ids, steps, phases, reports, and what it refuses."""

from __future__ import annotations

import pytest

from driving import ALL_EDITIONS, assert_sound, difference, recorded, small_engine
from labengine.config import SamplingParams
from labengine.engine.step_report import StepReport
from labengine.events import EngineStarted, StepEnded, StepRolledBack, StepStarted
from labengine.record.hooks import Hooks

TWO = SamplingParams(max_tokens=2)


def test_ids_count_from_zero_in_the_order_of_adding() -> None:
    engine = small_engine()
    assert [engine.add([1, 2], TWO) for _ in range(3)] == [0, 1, 2]


def test_a_report_is_falsy_exactly_when_there_was_nothing_to_do() -> None:
    engine = small_engine()
    assert not engine.step()
    assert engine.step() == StepReport(0)
    engine.add([1, 2, 3], TWO)
    assert engine.step()
    assert engine.step()
    assert not engine.step()
    assert StepReport(3, preempted=(1,))
    assert not StepReport(3, finished=(1,), sampled={1: (2,)})


def test_a_report_says_what_the_step_did() -> None:
    engine = small_engine(next_token=lambda request_id, position: 100 * request_id + position)
    engine.add([1, 2, 3], TWO)
    engine.add([4], SamplingParams(max_tokens=1))
    report = engine.step()
    assert (report.step, report.scheduled, report.sampled) == (1, {0: 3, 1: 1}, {0: (3,), 1: (101,)})
    assert (report.preempted, report.finished) == ((), (1,))
    assert engine.report is report


def test_an_idle_step_is_not_numbered() -> None:
    engine = small_engine()
    engine.step()
    engine.add([1], SamplingParams(max_tokens=1))
    assert engine.step().step == 1
    assert engine.step().step == 1
    assert engine.snapshot().step == 1


def test_phases_come_in_order() -> None:
    engine = small_engine()
    engine.add([1, 2, 3], TWO)
    assert list(engine.phases()) == ["schedule", "forward", "sample", "update"]
    assert list(engine.phases()) == ["schedule", "forward", "sample", "update"]
    assert list(engine.phases()) == []


def test_phases_show_the_state_in_between() -> None:
    engine = small_engine()
    engine.add([1, 2, 3, 4, 5], TWO)
    seen = []
    for phase in engine.phases():
        state = engine.snapshot().requests[0]
        seen.append((phase, len(state.block_tables[0]), state.num_computed_tokens, len(state.token_ids)))
    assert seen == [("schedule", 2, 0, 5), ("forward", 2, 0, 5), ("sample", 2, 0, 5), ("update", 2, 5, 6)]


@pytest.mark.parametrize("num_phases", [1, 2, 3])
@pytest.mark.parametrize("edition", ALL_EDITIONS)
def test_phases_that_are_closed_never_happened(edition: str, num_phases: int) -> None:
    engine = small_engine(edition=edition)
    engine.add([1, 2, 3, 4, 5], TWO)
    before = engine.snapshot()
    phases = engine.phases()
    for _ in range(num_phases):
        next(phases)
    assert engine.snapshot() != before
    phases.close()  # type: ignore[attr-defined]
    assert difference(engine.snapshot(), before) is None
    assert engine.step().step == 1


def test_phases_that_are_dropped_never_happened() -> None:
    engine = small_engine()
    engine.add([1, 2, 3, 4, 5], TWO)
    before = engine.snapshot()
    for _ in engine.phases():
        break
    assert difference(engine.snapshot(), before) is None


def test_an_open_step_refuses_company() -> None:
    """A change that is not in the step's journal could not be rolled back with it."""
    engine = small_engine()
    engine.add([1, 2, 3], TWO)
    phases = engine.phases()
    next(phases)
    for call in (lambda: engine.add([1], TWO), lambda: engine.abort(0), engine.step):
        with pytest.raises(RuntimeError, match="in the middle of a step"):
            call()
    assert list(phases) == ["forward", "sample", "update"]
    assert engine.add([1], TWO) == 1


def test_a_phase_that_is_the_last_has_ended_the_step() -> None:
    engine = small_engine()
    engine.add([1, 2, 3], TWO)
    phases = engine.phases()
    assert [next(phases) for _ in range(4)][-1] == "update"
    assert engine.add([1], TWO) == 1
    phases.close()  # type: ignore[attr-defined]
    assert engine.snapshot().step == 1


def test_steps_are_reported_from_start_to_end() -> None:
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    engine = small_engine(6, 4, hooks=hooks)
    assert events == [EngineStarted(6, (("full", 4, None),), "labengine")]
    engine.add([1, 2, 3], TWO)
    while engine.step():
        pass
    frames = [event for event in events if isinstance(event, (StepStarted, StepEnded, StepRolledBack))]
    assert frames == [StepStarted(1), StepEnded(1), StepStarted(2), StepEnded(2)]


def test_a_runner_that_returns_too_few_or_too_many_tokens_is_an_error() -> None:
    for tokens in ([], [1, 2]):
        engine = small_engine()
        engine.add([1, 2, 3], TWO)
        engine.runner.sample = lambda plan, logits, tokens=tokens: tokens  # type: ignore[method-assign, misc]
        with pytest.raises((RuntimeError, ValueError)):
            engine.step()
        assert_sound(engine.snapshot())
        assert engine.snapshot().step == 0


def test_the_seed_of_a_request_is_its_own_or_derived() -> None:
    engine = small_engine()
    ids = [engine.add([1], SamplingParams(max_tokens=1, seed=seed)) for seed in (None, None, 5)]
    first, second, own = (engine.requests[i].seed for i in ids)
    assert own == 5
    assert first != second
    again = small_engine()
    again.add([1], SamplingParams(max_tokens=1))
    assert again.requests[0].seed == first
