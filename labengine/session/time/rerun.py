"""Going a known way again: an engine is given recorded inputs, each before the step that it once came before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from labengine.engine.engine import Engine
from labengine.engine.failure import RecordedFailureError, StepBrokenOffError
from labengine.engine.interrupts import interrupts_deferred, raise_deferred
from labengine.events import StepFailed
from labengine.session.time.inputs import AbortInput, AddInput, BrokenStep, Input, Inputs, ResetInput

if TYPE_CHECKING:
    from labengine.session.stepper import Stepper

_FEW_STEPS = 50
"""So many steps are over before a progress bar is of use."""


def rerun(stepper: Stepper, inputs: Inputs, step: int) -> None:
    """Do what was taken back again, up to where step `step + 1` would begin. Only in a turn, with no step open.

    An interrupt is held back until the step under way is over, so that the state is one that the inputs lead to. An
    engine that decides otherwise may be done earlier: then the next input does not wait for its step.
    """
    with inputs.rerunning(), _progress(stepper.engine.num_finished_steps, step) as advance:
        while True:
            with interrupts_deferred(firmly=True):
                _do_what_is_due(stepper.engine, inputs, step)
                before = stepper.engine.num_finished_steps
                if before >= step:
                    return
                stepper.step_unseen()
                if stepper.engine.num_finished_steps == before:
                    return
            advance()
            raise_deferred()


def _do_what_is_due(engine: Engine, inputs: Inputs, step: int) -> None:
    while (given := inputs.next) is not None and given.num_steps <= step:
        if given.num_steps > engine.num_finished_steps and not engine.scheduler.is_idle:
            return
        do(engine, given)
        inputs.note_done()


def do(engine: Engine, given: Input) -> None:
    """One input. ConfigError for a request that this engine could never run."""
    match given:
        case AddInput():
            engine.add(given.token_ids, given.sampling, given.cache_salt, given.extra_keys)
        case AbortInput():
            engine.abort(given.request_id)
        case ResetInput():
            engine.reset_prefix_cache()
        case BrokenStep(failed=StepFailed()):
            _fail_again(engine, given)
        case BrokenStep():
            _break_off(engine, given)
        case _:
            raise AssertionError(f"{given} is no input that could be done again")


def _fail_again(engine: Engine, broken: BrokenStep) -> None:
    """Take the step in which a part raised: it raises again, and the step is taken back. A runner is made to raise."""
    assert broken.failed is not None
    runner = engine.runner
    if broken.by_runner:
        method = "forward" if broken.reached == "forward" else "sample"
        engine.runner = _FailingRunner(runner, RecordedFailureError(broken.failed), method)
    try:
        engine.step()
    except BaseException as error:
        if engine.failure is not error:
            raise
    finally:
        engine.runner = runner


def _break_off(engine: Engine, broken: BrokenStep) -> None:
    """Take a step as far as it had come, and take it back."""
    error = type(broken.reason, (StepBrokenOffError,), {})
    runner, phases = engine.runner, engine.phases()
    try:
        if broken.reached == "forward":
            engine.runner = _FailingRunner(runner, error(), "forward")
        for phase in phases:
            if phase == ("schedule" if broken.reached == "schedule" else "forward"):
                phases.throw(error)  # type: ignore[attr-defined]
    except StepBrokenOffError:
        pass
    finally:
        engine.runner = runner


class _FailingRunner:
    """The runner, in one of whose methods something goes wrong, as it once did."""

    def __init__(self, runner: Any, error: BaseException, method: str) -> None:
        self._runner = runner
        self._error = error
        setattr(self, method, self._fail)

    def _fail(self, *_: Any) -> Any:
        raise self._error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)


@contextmanager
def _progress(start: int, stop: int) -> Iterator[Callable[[], object]]:
    """What to call after each step: a bar, where it takes more than a moment."""
    if stop - start <= _FEW_STEPS:
        yield lambda: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=stop - start, desc="taking the steps again", unit="step", delay=1, leave=False) as bar:
        yield bar.update
