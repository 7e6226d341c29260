"""Repeating a run: give an engine its recorded inputs again, each before the same step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from labengine.engine.engine import Engine
from labengine.engine.interrupts import interrupts_deferred, raise_deferred
from labengine.session.history.broken_steps import break_again_step
from labengine.session.history.inputs import (
    AbortInput,
    AddInput,
    BranchInput,
    BrokenStep,
    FillInput,
    Input,
    Inputs,
    ResetInput,
)
from labengine.session.stepper import Stepper

_FEW_STEPS = 50
"""Reruns up to this length get no progress bar."""


def rerun(stepper: Stepper, inputs: Inputs, step: int) -> None:
    """Repeat the undone inputs, up to where step `step + 1` would begin. No step may be open.

    The caller holds the stepper's lock. An interrupt is deferred to the end of the current step, so that the inputs
    lead to the state that it leaves. An engine that decides differently may run out of work earlier: then the next
    input does not wait for its step.
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
    """Do an input. ConfigError for a request that this engine can never run."""
    match due:
        case BranchInput():
            engine.branch(due.request_id, due.seed, due.token_id)
        case AddInput():
            engine.add(due.token_ids, due.options, due.leader_id)
        case FillInput():
            inputs.fill(due)
        case AbortInput():
            engine.abort(due.request_id)
        case ResetInput():
            engine.reset_prefix_cache()
        case BrokenStep():
            break_again_step(engine, due)
        case _:
            raise AssertionError(f"{due} is not a repeatable input")


@contextmanager
def progress_bar(start: int, stop: int) -> Iterator[Callable[[], object]]:
    """Yield a function to call after each step from `start` to `stop`; for many steps it moves a progress bar."""
    if stop - start <= _FEW_STEPS:
        yield lambda: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=stop - start, desc="repeating the steps", unit="step", delay=1, leave=False) as bar:
        yield bar.update
