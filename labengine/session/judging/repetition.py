"""A run's inputs repeated in a separate session, with a probe that keeps what one request computes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from labengine.config import ConfigError
from labengine.record.violation import Violation
from labengine.session.history.history import History
from labengine.session.history.repeating import rerun
from labengine.session.judging.run import JudgedRun, misreads_of
from labengine.session.session import Session

if TYPE_CHECKING:  # torch is loaded for real models only
    from labengine.engine.model_runner import ModelRunner
    from labengine.engine.probe import Reading


class Repetition:
    """Repeats a run's steps one by one, on the same parts, runner and weights. The run's lab does not change.

    kv_at: the position at whose sampling the KV is read. Close it when done. Raises ConfigError for a run that cannot
    be repeated: its external tier cannot be emptied, or a second pool does not fit.
    """

    def __init__(self, run: JudgedRun, kv_at: int) -> None:
        self._run = run
        self._readings: dict[int, Reading] = {}
        self._steps: dict[int, int] = {}
        with ExitStack() as made:
            self.session, play = _empty_session(run.session, made)
            self.session.violation_warnings.is_silent = True
            if not run.is_simulated:
                self._attach_probe(kv_at)
            self._begin(play)
            self._owned = made.pop_all()

    def reading(self, position: int) -> Reading:
        """Return what the step that samples this position computes. Raises ConfigError if the steps go differently."""
        while position not in self._readings and self._take_step():
            pass
        run = self._run
        if position not in self._readings or self._token_at(position) != run.token_ids[position]:
            raise ConfigError(
                f"{run.request} gets different tokens when its steps are repeated (up to position {position}): it "
                "depends on more than the run's inputs and cannot be judged"
            )
        return self._readings.pop(position)

    def step_of(self, position: int) -> int:
        """Return the step that sampled a position."""
        return self._steps[position]

    def misreads(self) -> tuple[Violation, ...]:
        """Take the remaining steps; return all violations of the rule `read`."""
        while self._take_step():
            pass
        return misreads_of(self.session)

    def close(self) -> None:
        """Release the session."""
        self._owned.close()

    def _attach_probe(self, kv_at: int) -> None:
        from labengine.engine.probe import Probe

        engine, runner = self.session.stepper.engine, cast("ModelRunner", self.session.model.runner)
        engine.runner = Probe(engine.runner, runner, self._run.request_id, kv_at, self._readings)

    def _begin(self, play: Callable[[], object]) -> None:
        source = self._run.session
        inputs, self._num_steps = History(source).past
        play()
        self._note_steps()
        with self.session.stepper.exclusive():
            self.session.inputs.expect(inputs if source.origin is None else inputs[source.origin.num_inputs :])

    def _take_step(self) -> bool:
        """Take the next step, with the inputs before it. Return False at the end of the run."""
        stepper = self.session.stepper
        with stepper.exclusive():
            before = stepper.engine.num_finished_steps
            if before < self._num_steps:
                rerun(stepper, self.session.inputs, before + 1)
            self._note_steps()
            return stepper.engine.num_finished_steps > before

    def _note_steps(self) -> None:
        now = self.session.stepper.engine.num_finished_steps
        for position in self._readings:
            self._steps.setdefault(position, now)

    def _token_at(self, position: int) -> int | None:
        tokens = self.session.stepper.engine.requests[self._run.request_id].token_ids
        return tokens[position] if position < len(tokens) else None


def _empty_session(source: Session, made: ExitStack) -> tuple[Session, Callable[[], object]]:
    """Return a session to repeat another one's inputs in, and a call that does what the inputs do not record."""
    if source.origin is None:
        session = History(source).empty_fork(check=True, overlap=None)
        made.callback(session.close)
        return session, lambda: None
    lab: Any = source.origin.make(source.parts)
    made.callback(lab.close)
    return lab.session, partial(source.origin.play, lab)
