"""Steps broken off on purpose: between two phases, at an event, or where a recorded step was."""

from __future__ import annotations

from difflib import get_close_matches
from itertools import count
from typing import Any, NoReturn

from labengine.config import ConfigError, checked_int, shown
from labengine.engine.engine import Engine
from labengine.engine.failure import RaisedOnPurposeError, RecordedFailureError, StepBrokenOffError
from labengine.engine.runner import Runner
from labengine.engine.step_report import Phase
from labengine.events import (
    EVENT_KINDS,
    DecisionDiffered,
    Event,
    StepEnded,
    StepFailed,
    StepRolledBack,
    ViolationFound,
)
from labengine.session.history.inputs import BrokenStep
from labengine.session.stepper import Stepper

_REACHED = ("schedule", "forward", "sample")
_AFTER = (StepEnded, StepFailed, StepRolledBack, ViolationFound, DecisionDiffered)
_INSIDE = {kind.__name__: kind for kind in EVENT_KINDS if kind not in _AFTER}


def break_off(stepper: Stepper, reached: Phase, reason: str = "KeyboardInterrupt") -> None:
    """Take a step up to a phase, and roll it back; the content of the slots it wrote is invalid afterwards.

    Scripts made by to_code() call this. reached: "schedule" (blocks may have been loaded), "forward" (the forward pass
    failed) or "sample" (it was done). reason: the name of the error that ends the step. ConfigError for another phase
    or an invalid name.
    """
    if reached not in _REACHED or not reason.isidentifier():
        raise ConfigError(f"break_off() takes a phase ({', '.join(_REACHED)}) and an error's name, got {reached!r}")
    with stepper.between_steps():
        break_off_step(stepper.engine, BrokenStep(stepper.engine.num_finished_steps, reached, reason))


def break_again(stepper: Stepper, broken: BrokenStep) -> None:
    """Break a step off where a recorded one was, by an interrupt or an error of the model's runner."""
    with stepper.between_steps():
        break_again_step(stepper.engine, broken)


def break_off_at(stepper: Stepper, kind: str, number: int = 1, reason: str = "KeyboardInterrupt") -> None:
    """Take a step up to an event of a kind (the `number`-th in the step), and roll it back.

    Scripts made by to_code() call this. reason: "KeyboardInterrupt", or the name of an error, which counts as raised
    by a part. Without such an event the step is completed. ConfigError for a kind at which no step can end.
    """
    checked_place(kind, number, reason)
    with stepper.between_steps():
        break_off_step_at(stepper.engine, (kind, number), reason)


def checked_place(kind: str, number: int, reason: str) -> None:
    """Raise ConfigError for a place at which no step can be broken off."""
    if kind not in _INSIDE:
        near = get_close_matches(str(kind), _INSIDE, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"kind must be an event inside a step, such as 'TokenSampled', got {kind!r}{hint}")
    checked_int("number", number, 1)
    if not isinstance(reason, str) or not reason.isidentifier():
        raise ConfigError(f"reason must be the name of an error, got {shown(reason)}")


# -- on an engine ------------------------------------------------------------------------------------------------------


def break_again_step(engine: Engine, broken: BrokenStep) -> None:
    """Take a step that ends as a recorded one did, and roll it back."""
    if broken.ends_at is not None:
        break_off_step_at(engine, broken.ends_at, broken.reason)
    elif broken.failed is not None:
        _fail_again(engine, broken, broken.failed)
    else:
        break_off_step(engine, broken)


def break_off_step_at(engine: Engine, ends_at: tuple[str, int], reason: str = "KeyboardInterrupt") -> None:
    """Take a step up to one of its events, and roll it back. Without such an event the step is completed."""
    kind, number = ends_at
    base = StepBrokenOffError if reason == "KeyboardInterrupt" else RaisedOnPurposeError
    error = type(reason, (base,), {})(f"raised on purpose at the event {kind}")
    met = count(1)

    def end(_: Event) -> None:
        if next(met) == number:
            raise error

    engine.ends_at = ends_at
    try:
        with engine.hooks.subscribe(end, _INSIDE[kind]):
            engine.step()
    except base as raised:
        if raised is not error:
            raise
    finally:
        engine.ends_at = None


def _fail_again(engine: Engine, broken: BrokenStep, failed: StepFailed) -> None:
    """Take the step in which a part raised, so that it raises again and the step is rolled back.

    A failing runner takes the place of a runner that raised.
    """
    runner = engine.runner
    if broken.by_runner:
        method = "forward" if broken.reached == "forward" else "sample"
        engine.runner = _FailingRunner(runner, RecordedFailureError(failed), method)
    try:
        for _ in engine.phases():
            pass
    except BaseException as error:
        if engine.failure is not error:
            raise
    finally:
        engine.runner = runner


def break_off_step(engine: Engine, broken: BrokenStep) -> None:
    """Take a step up to the recorded phase, and roll it back."""
    error = type(broken.reason, (StepBrokenOffError,), {})
    runner, phases = engine.runner, engine.phases()
    try:
        if broken.reached == "forward":
            engine.runner = _FailingRunner(runner, error(), "forward")
        for phase in phases:
            if phase == ("schedule" if broken.reached == "schedule" else "forward"):
                phases.throw(error)
    except StepBrokenOffError:
        pass
    finally:
        engine.runner = runner


class _FailingRunner:
    """A runner with one method that raises."""

    def __init__(self, runner: Runner, error: BaseException, method: str) -> None:
        self._runner = runner
        self._error = error
        setattr(self, method, self._fail)

    def _fail(self, *_: object) -> NoReturn:
        raise self._error

    def __getattr__(self, name: str) -> Any:  # any attribute of the runner
        return getattr(self._runner, name)
