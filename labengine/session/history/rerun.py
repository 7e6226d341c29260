"""Repeating a run: an engine gets its recorded inputs again, each before the same step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from labengine.config import ConfigError
from labengine.engine.engine import Engine, Phase
from labengine.engine.failure import RecordedFailureError, StepBrokenOffError
from labengine.engine.interrupts import interrupts_deferred, raise_deferred
from labengine.engine.runner import Runner
from labengine.events import StepFailed
from labengine.session.history.inputs import AbortInput, AddInput, BrokenStep, FillInput, Input, Inputs, ResetInput
from labengine.session.stepper import Stepper

_FEW_STEPS = 50
"""Reruns up to this length get no progress bar."""
_REACHED = ("schedule", "forward", "sample")


def rerun(stepper: Stepper, inputs: Inputs, step: int) -> None:
    """Do the undone inputs again, up to where step `step + 1` would begin. No step may be open.

    The caller holds the stepper's lock. An interrupt is held back until the current step is over, so that the state is
    one that the inputs lead to. An engine that decides differently may run out of work earlier: then the next input
    does not wait for its step.
    """
    with inputs.rerunning(), progress_bar(stepper.engine.num_finished_steps, step) as advance:
        while True:
            with interrupts_deferred(firmly=True):
                _do_what_is_due(stepper.engine, inputs, step)
                before = stepper.engine.num_finished_steps
                if before >= step:
                    return
                stepper.step_overlapping()
                if stepper.engine.num_finished_steps == before:
                    return
            advance()
            raise_deferred()


def _do_what_is_due(engine: Engine, inputs: Inputs, step: int) -> None:
    while (due := inputs.next) is not None and due.num_steps <= step:
        if due.num_steps > engine.num_finished_steps and not engine.scheduler.is_idle:
            return
        _do(engine, due, inputs)
        inputs.note_done()


def _do(engine: Engine, due: Input, inputs: Inputs) -> None:
    """Do one input. ConfigError for a request that this engine could never run."""
    match due:
        case AddInput():
            engine.add(due.token_ids, due.sampling, due.cache_salt, due.extra_keys)
        case FillInput():
            inputs.fill(due)
        case AbortInput():
            engine.abort(due.request_id)
        case ResetInput():
            engine.reset_prefix_cache()
        case BrokenStep(failed=StepFailed() as failed):
            _fail_again(engine, due, failed)
        case BrokenStep():
            break_off_step(engine, due)
        case _:
            raise AssertionError(f"{due} is no input that could be done again")


def break_off(stepper: Stepper, reached: Phase, reason: str = "KeyboardInterrupt") -> None:
    """Take a step up to a phase, and take it back; the content of the slots it wrote to is invalid afterwards.

    Scripts made by to_code() call this. reached: "schedule" (blocks may have been loaded), "forward" (the forward pass
    failed) or "sample" (it was done). reason: the name of the error that ends the step. ConfigError for another phase,
    and for what is no name.
    """
    if reached not in _REACHED or not reason.isidentifier():
        raise ConfigError(f"a step is broken off after one of {', '.join(_REACHED)} by a named error: got {reached!r}")
    with stepper.between_steps():
        break_off_step(stepper.engine, BrokenStep(stepper.engine.num_finished_steps, reached, reason))


def break_again(stepper: Stepper, broken: BrokenStep) -> None:
    """Break a step off as a recorded one was: by an interrupt, or by an error of the model's runner."""
    with stepper.between_steps():
        if broken.failed is None:
            break_off_step(stepper.engine, broken)
        else:
            _fail_again(stepper.engine, broken, broken.failed)


def _fail_again(engine: Engine, broken: BrokenStep, failed: StepFailed) -> None:
    """Take the step in which a part raised: it raises again, and the step is rolled back. A runner is made to raise."""
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
    """Take a step up to the recorded phase, and take it back."""
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
    """A runner of which one method raises."""

    def __init__(self, runner: Runner, error: BaseException, method: str) -> None:
        self._runner = runner
        self._error = error
        setattr(self, method, self._fail)

    def _fail(self, *_: object) -> NoReturn:
        raise self._error

    def __getattr__(self, name: str) -> Any:  # any attribute of the runner
        return getattr(self._runner, name)


@contextmanager
def progress_bar(start: int, stop: int) -> Iterator[Callable[[], object]]:
    """Yield the function to call after each step from `start` to `stop`: it moves a progress bar if they are many."""
    if stop - start <= _FEW_STEPS:
        yield lambda: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=stop - start, desc="taking the steps again", unit="step", delay=1, leave=False) as bar:
        yield bar.update
