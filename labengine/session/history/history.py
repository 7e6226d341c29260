"""Rewind and fork: return a session to an earlier step, or repeat it in a second session up to that step."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from labengine.config import ConfigError, as_int
from labengine.core.parts import Parts, given_parts
from labengine.driven.driven import Driven
from labengine.driven.model import DrivenModel
from labengine.engine.loaded_model import LoadedModel, SimulatedModel
from labengine.engine.recorded_model import RecordedModel, RecordedRequest
from labengine.session.history.inputs import AddInput, BrokenStep, Input
from labengine.session.history.repeating import rerun
from labengine.session.session import Session
from labengine.session.settings import LabSettings, refuse_unknown
from labengine.session.violation_warnings import stacklevel_of_caller

_NO_TIER = {"vary": "make a lab with external='host', or without a tier"}
"""Advice of a call without external= if the tier cannot be emptied."""
_OF_THE_WEIGHTS = ("model", "dtype", "device", "attention", "cuda_graphs", "runner")
"""Settings that belong to the loaded weights, which a fork shares."""


class History:
    """The inputs of a session, and the rewinds and forks that repeat them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._stepper = session.stepper
        self._inputs = session.inputs

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Inputs since the session was made or reset, in order."""
        with self._stepper.reading():
            return self._inputs.done

    @property
    def num_known_steps(self) -> int:
        """The newest step that the known inputs lead to, including steps undone by a rewind."""
        with self._stepper.reading():
            return self._inputs.num_known_steps

    @property
    def is_at_crash(self) -> bool:
        """True while the newest input is a step that was rolled back because a part raised."""
        with self._stepper.reading():
            done = self._inputs.kept
            return bool(done) and _is_crash(done[-1]) and done[-1].num_steps == self._now

    def num_requests_before(self, step: int) -> int:
        """Count the requests that were added before step `step + 1` began."""
        with self._stepper.reading():
            return sum(isinstance(known, AddInput) for known in self._inputs.until(step))

    @property
    def _now(self) -> int:
        return self._stepper.engine.num_finished_steps

    # -- fork ----------------------------------------------------------------------------------------------------------

    def fork(
        self, step: int | None = None, *, edition: str | None = None, parts: Parts | type | None = None, **settings: Any
    ) -> Session:
        """Return a second session with the same inputs up to a step. See Lab.fork."""
        refuse_unknown("fork()", settings, LabSettings, History.fork)
        with self._stepper.reading():
            self._stepper.refuse_if_closed()
            now = self._now
            inputs = self._inputs.repeatable if step is None else self._inputs.until(self._known_step(step))
            changed = self._changed_settings("fork", edition, parts, settings)
            if changed.all_parts != self._session.parts:
                inputs = tuple(known for known in inputs if not _is_crash(known))
            model = self._sibling_model(changed)
        fork = _session(changed, model)
        _repeat(fork, inputs, now if step is None else step)
        return fork

    def empty_fork(
        self,
        *,
        edition: str | None = None,
        parts: Parts | type | None = None,
        driven: Driven | None = None,
        **settings: Any,
    ) -> Session:
        """Return a second session on the same weights, without inputs. Otherwise as `fork`.

        driven: replaces a driven engine by the same one with other patches.
        """
        refuse_unknown("rerun()", settings, LabSettings)
        with self._stepper.reading():
            self._stepper.refuse_if_closed()
            changed = self._changed_settings("rerun", edition, parts, settings)
            if driven is not None:
                changed = replace(changed, model=driven)
            model = self._sibling_model(changed)
        return _session(changed, model)

    def varied_fork(self, recorded: Callable[[int], RecordedRequest] | None, **settings: Any) -> Session:
        """Return a second session without inputs, whose requests sample recorded tokens; None: the same model.

        The weights of a closed session are released, so that only recorded tokens or the simulated model are left.
        """
        model = self._session.model
        with self._stepper.reading():
            changed = self._changed_settings("vary", None, None, settings)
            if recorded is not None:
                return _session(changed, RecordedModel(model, changed.engine_config(), recorded))
            if not isinstance(model, SimulatedModel):
                self._stepper.refuse_if_closed()
            return _session(changed, self._sibling_model(changed))

    def refuse_lasting_tier(self, call: str) -> None:
        """Raise ConfigError, with advice, if the external tier cannot be emptied for the call."""
        self._refuse_lasting_tier(call, _NO_TIER.get(call, f"use {call}(external=None) or {call}(external='host')"))

    @property
    def past(self) -> tuple[tuple[Input, ...], int]:
        """The inputs since the session was made or reset, and the number of finished steps."""
        with self._stepper.reading():
            return self._inputs.repeatable, self._now

    def _sibling_model(self, settings: LabSettings) -> LoadedModel:
        model, sizes = self._session.model, (settings.engine_config(), settings.model_options())
        if isinstance(model, DrivenModel) and isinstance(settings.model, Driven) and settings.model != model.driven:
            return model.patched(settings.model, *sizes)
        return model.sibling(*sizes)

    def _changed_settings(
        self, call: str, edition: str | None, parts: Parts | type | None, changes: dict[str, Any]
    ) -> LabSettings:
        for name in _OF_THE_WEIGHTS:
            if name in changes:
                raise ConfigError(f"{call}() shares this lab's loaded weights, which determine {name}: make a new Lab")
        if "external" not in changes:
            self.refuse_lasting_tier(call)
        own: dict[str, Any] = {"num_blocks": self._session.config.num_blocks}
        if edition is not None:
            own |= {"edition": edition, "parts": parts}
        elif parts is not None:
            own |= {"parts": given_parts(parts).overriding(self._session.parts)}
        return replace(self._session.settings, **own | changes)

    # -- rewind --------------------------------------------------------------------------------------------------------

    def rewind(self, step: int) -> None:
        """Go back to where step `step + 1` was about to begin, with the same engine. See Lab.rewind."""
        self.refuse_rewind(step)
        self._session.runs.pause()
        with self._stepper.exclusive(), self._session.runs.in_progress.counted():
            step = self._known_step(step)  # the background may have passed an input and forgotten later steps
            self._session.breakpoints.forget_hit()
            if self._can_reach(step):
                self._stepper.step() if self._stepper.has_open_step else None
            else:
                self._stepper.engine.transfers.stop()
                with self._inputs.taken_back():
                    self._session.restart()
            self._go_on(step)

    def refuse_rewind(self, step: object) -> None:
        """Raise ConfigError for a step that rewind() cannot reach. Nothing changes."""
        with self._stepper.exclusive():
            self._inputs.until(self._known_step(step))  # refused for dropped inputs and those between two labs
            self._refuse_lasting_tier("rewind", "lab.fork(external=None) makes a second lab without it")

    def _can_reach(self, step: int) -> bool:
        """True if the step can be reached from here without undoing anything."""
        if self._inputs.had_accident:
            return False
        is_there = self._now == step and not self._stepper.has_open_step
        return self._now < step or (is_there and all(done.num_steps <= step for done in self._inputs.done))

    def _go_on(self, step: int) -> None:
        """Repeat inputs and steps up to a step. An error leaves the lab between two steps; a note names them."""
        try:
            rerun(self._stepper, self._inputs, step)
        except BaseException as error:
            where = f"The lab is now after step {self._now} of {step}; lab.rewind({step}) continues."
            error.add_note(where)
            raise

    def _known_step(self, step: object) -> int:
        newest, asked = self._inputs.num_known_steps, as_int(step)
        if asked is None or not 0 <= asked <= newest:
            taken = f"{newest} step{'s' * (newest != 1)}"
            raise ConfigError(f"step must be between 0 and {newest} (the lab has taken {taken}), got {step!r}")
        return asked

    def _refuse_lasting_tier(self, call: str, instead: str) -> None:
        """Raise ConfigError for an external tier that cannot be emptied."""
        external = self._session.external
        if external is None:
            return
        if self._session.settings.external != "host":
            raise ConfigError(
                f"{call}() repeats the steps from an empty external tier, but {external.describe()} cannot be "
                f"emptied: {instead}"
            )
        if self._session.was_tier_written:
            raise ConfigError(
                f"{call}() repeats a lab's inputs, but some blocks in its external tier did not come from one: "
                "fill the tier with lab.fill_external(prompt), which counts as an input"
            )
        if self._session.has_used_tier:
            text = f"reset() kept the host tier's blocks; {call}() starts without them and may run differently"
            warnings.warn(text, stacklevel=stacklevel_of_caller())


def _session(settings: LabSettings, model: LoadedModel) -> Session:
    """Return a session on a model; release the model after an error."""
    try:
        return Session(settings, model)
    except BaseException:
        model.release()
        raise


def _repeat(fork: Session, inputs: tuple[Input, ...], step: int) -> None:
    """Repeat another session's inputs in a new one, up to a step. An error closes it, unless its parts raised."""
    try:
        with fork.stepper.exclusive():
            fork.inputs.expect(inputs)
            rerun(fork.stepper, fork.inputs, step)
    except BaseException as error:
        reached = fork.stepper.engine.num_finished_steps
        if fork.stepper.engine.failure is error:
            text = f"The fork stopped after step {reached} of {step}, where its parts fail: {fork.crashes.newest}"
            warnings.warn(text, stacklevel=stacklevel_of_caller())
            return
        fork.close()
        error.add_note(f"The fork failed after {reached} of {step} steps; this lab is unchanged.")
        raise


def _is_crash(known: Input) -> bool:
    return isinstance(known, BrokenStep) and known.is_failure_of_parts
