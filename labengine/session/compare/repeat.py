"""The inputs of a third lab, repeated on both sides of a comparison: each before the same step of the left side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from labengine.session.compare.lockstep import Act
from labengine.session.compare.pair import SidePair
from labengine.session.compare.pair_runs import PairRuns
from labengine.session.compare.sides import LiveSide
from labengine.session.history.broken_steps import break_again
from labengine.session.history.inputs import AbortInput, AddInput, BranchInput, BrokenStep, FillInput, Input, ResetInput
from labengine.session.history.repeating import progress_bar

_MORE_STEPS = 100
"""Extra steps that the right side may take after the left one's end, beyond twice the left one's number: a limit for
parts that never finish a request."""

_STEPPING = ("step", "next_phase", "run", "generate")
"""The methods of a lab that take steps."""


class PairRepeat:
    """Repeats inputs on two empty sides. A side whose part raises in a step stays at its crash; the other goes on."""

    def __init__(self, pair: SidePair, runs: PairRuns) -> None:
        self._pair = pair
        self._runs = runs

    def repeat(self, inputs: Sequence[Input], num_steps: int) -> None:
        """Do the inputs and take `num_steps` left steps; finish the right side's work if the left side has none left.

        Raises an error from outside a step, such as a part's when a request is added.
        """
        with progress_bar(0, num_steps) as advance:
            for due in inputs:
                self._step_to(due.num_steps, advance)
                self._do(due)
            self._step_to(num_steps, advance)
        if _is_idle(self._pair.labs[0]):
            self.finish(_MORE_STEPS + 2 * num_steps)

    def finish(self, most: int) -> None:
        """Step both at most `most` times, until neither has work left or makes progress."""
        for _ in range(most):
            if all(map(_is_idle, self._pair.labs)) or not self._step():
                return

    def play(self, play: Callable[[Any], object]) -> None:
        """Play each side by itself from its beginning; a step in which a part raises does nothing.

        Afterwards the sides count as aligned, wherever they are.
        """
        for lab in self._pair.labs:
            with _crashes_ignored(lab):
                play(lab)
        self._pair.begin_aligned(as_they_are=True)

    def _step_to(self, num_steps: int, advance: Callable[[], object]) -> None:
        while _num_steps(self._pair.labs[0]) < num_steps and self._step():
            advance()

    def _step(self) -> bool:
        """Take one step on each side that can; return False if neither has made progress."""
        labs = self._pair.labs
        before = [*map(_num_steps, labs)]
        try:
            self._runs.step()
        except Exception as error:
            if not any(_has_raised(lab, error) for lab in labs):
                raise
        return before != [*map(_num_steps, labs)]

    def _do(self, due: Input) -> None:
        if isinstance(due, BrokenStep) and due.is_failure_of_parts:
            self._step()  # the same parts raise again; other parts may take the step
        else:
            self._pair.do(_act(due))


@contextmanager
def _crashes_ignored(lab: LiveSide) -> Iterator[None]:
    """Inside the block, have the lab's stepping methods return None if a part raises in a step."""
    for name in _STEPPING:
        vars(lab)[name] = _ignoring_crashes(lab, getattr(lab, name))
    try:
        yield
    finally:
        for name in _STEPPING:
            del vars(lab)[name]


def _ignoring_crashes(lab: LiveSide, call: Callable[..., Any]) -> Callable[..., Any]:
    def stepping(*arguments: Any, **keywords: Any) -> Any:
        try:
            return call(*arguments, **keywords)
        except Exception as error:
            if not _has_raised(lab, error):
                raise
        return None

    return stepping


def _has_raised(lab: LiveSide, error: Exception) -> bool:
    crash = lab.session.crashes.newest
    return crash is not None and crash.exception is error


def _act(due: Input) -> Act:
    """Return an input as an operation on a lab."""
    match due:
        case BranchInput():
            return lambda lab: lab.session.requests.branch(due.request_id, due.seed, due.token_id)
        case AddInput():
            return lambda lab: _add(lab, due)
        case FillInput():
            return lambda lab: lab.session.fill_external(None, due.token_ids)
        case AbortInput():
            return lambda lab: _abort(lab, due.request_id)
        case ResetInput():
            return lambda lab: lab.session.requests.reset_prefix_cache()
        case BrokenStep():
            return lambda lab: break_again(lab.session.stepper, due)
    raise AssertionError(f"{due} is not a repeatable input")


def _add(lab: LiveSide, due: AddInput) -> int:
    requests = lab.session.requests
    checked = requests.checked(None, due.token_ids, due.options)
    return requests.repeat(replace(checked, leader_id=due.leader_id))


def _abort(lab: LiveSide, request_id: int) -> None:
    with suppress(KeyError):  # one side may have finished and forgotten the request
        lab.session.requests.abort(request_id)


def _num_steps(lab: LiveSide) -> int:
    return lab.session.stepper.engine.num_finished_steps


def _is_idle(lab: LiveSide) -> bool:
    return lab.session.stepper.engine.scheduler.is_idle
