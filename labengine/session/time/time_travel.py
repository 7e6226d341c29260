"""Time at the desk: back to a step, a second lab that goes another way from it, and stops at what one waits for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self
from warnings import warn

from labengine.config import ConfigError, is_single_int
from labengine.core.parts import Parts
from labengine.core.prefix_cache import HashChain
from labengine.events import ViolationFound
from labengine.session.assembled import Assembled
from labengine.session.keywords import refuse_unknown
from labengine.session.settings import LabSettings
from labengine.session.time.breakpoints import Breakpoint, Stop
from labengine.session.time.conditions import condition
from labengine.session.time.field_values import Bounds
from labengine.session.time.inputs import BrokenStep, Input
from labengine.session.time.rerun import rerun

if TYPE_CHECKING:
    from labengine.events import Event

_OF_THE_WEIGHTS = ("model", "dtype", "device", "attention", "cuda_graphs")
"""Settings that come with the loaded weights."""


class TimeTravel(Assembled):
    """The recorded inputs, and what can be done with them."""

    @property
    def inputs(self) -> tuple[Input, ...]:
        """What this lab was given since it was made or reset, in order: requests, aborts, resets of the cache."""
        with self._stepper.turn_to_look():
            return self._inputs.done

    @property
    def num_known_steps(self) -> int:
        """The newest step on this way: also those that a rewind took back, as long as nothing new was done."""
        with self._stepper.turn_to_look():
            return self._inputs.num_known_steps

    @property
    def is_at_crash(self) -> bool:
        """True while the newest thing that has happened is a step in which a part raised, and which was taken back."""
        with self._stepper.turn_to_look():
            done = self._inputs.done
            here = self._stepper.engine.num_finished_steps
            return bool(done) and _is_failure_of_parts(done[-1]) and done[-1].num_steps == here

    # -- another way ---------------------------------------------------------------------------------------------------

    def fork(
        self, step: int | None = None, *, edition: str | None = None, parts: Parts | None = None, **settings: Any
    ) -> Self:
        """A second lab that was given the same inputs up to a step, and can go another way from there.

        step: the fork stands where step `step + 1` is about to begin; None is now, an open step left out. It has this
        lab's loaded weights (they go with the last lab that uses them) and a KV pool of its own.
        edition, parts, settings: in what it differs from this lab, from its first step on: any keyword of Lab but those
        of the weights. parts replaces fields of the edition's, or else of this lab's own. With the same settings it
        has gone the same way, event by event; with others the same inputs come before the same steps, or, where it has
        nothing left to do, at once.
        Steps in which a part of this lab has raised are left out where the parts differ; a fork whose own parts raise
        stands at its crash, and warns of it.
        An external tier in host memory begins empty; another one cannot be had twice: give external=. ConfigError for
        a step that was not taken, and for what cannot work. This lab does not change.
        """
        refuse_unknown("fork()", settings, LabSettings, TimeTravel.fork)
        with self._stepper.turn_to_look():
            self._stepper.refuse_if_closed()
            now = self._stepper.engine.num_finished_steps
            inputs = self._inputs.done if step is None else self._inputs.until(self._known_step(step))
            changed = self._changed_settings(edition, parts, settings)
            if changed.all_parts != self.parts:
                inputs = tuple(given for given in inputs if not _is_failure_of_parts(given))
            model = self._model.sibling(changed.engine_config(), changed.model_options())
        return self._fork_on(model, changed, inputs, now if step is None else step)

    def _fork_on(self, model: Any, settings: LabSettings, inputs: tuple[Input, ...], step: int) -> Self:
        fork = type(self).__new__(type(self))
        try:
            fork._assemble(settings, model)
        except BaseException:
            model.release()
            raise
        try:
            with fork._stepper.turn():
                fork._inputs.give(inputs)
                rerun(fork._stepper, fork._inputs, step)
        except BaseException as error:
            reached = fork._stepper.engine.num_finished_steps
            if fork._stepper.engine.failure is error:
                warn(f"The fork stands after step {reached} of {step}, where its parts fail: {fork._crashes.newest}",
                     stacklevel=3)  # fmt: skip
                return fork
            fork.close()  # type: ignore[attr-defined]
            error.add_note(f"The fork was given up after {reached} of {step} steps; this lab is as it was.")
            raise
        return fork

    def _changed_settings(self, edition: str | None, parts: Parts | None, changes: dict[str, Any]) -> LabSettings:
        for name in _OF_THE_WEIGHTS:
            if name in changes:
                raise ConfigError(f"a fork shares this lab's loaded weights, and {name} goes with them: make a new Lab")
        if "external" not in changes:
            self._refuse_lasting_tier("fork", "give the fork external=None, or external='host'")
        if not isinstance(parts, Parts | None):
            raise ConfigError(f"parts must be a labengine.Parts, got {parts!r}")
        own: dict[str, Any] = {"num_blocks": self.config.num_blocks}
        if edition is not None:
            own |= {"edition": edition, "parts": parts}
        elif parts is not None:
            own |= {"parts": parts.overriding(self.parts)}
        return replace(self.settings, **own | changes)

    # -- back in place -------------------------------------------------------------------------------------------------

    def rewind(self, step: int) -> None:
        """Go back to where step `step + 1` was about to begin: the same engine, which takes its steps again from 0.

        It begins empty, is given its inputs again, and the recording starts over. Inputs that came later stay known:
        rewind to a later step goes forward again, until something new is added. An open step is taken back, the
        background paused, `stopped_at` forgotten. An interrupt ends it between two steps, and says where. ConfigError
        for a step not taken: then nothing has changed.
        """
        self._refuse_rewind(step)
        self.pause()  # type: ignore[attr-defined]
        with self._stepper.turn():
            step = self._known_step(step)  # a background that has passed an input knows no later steps any more
            self._breakpoints.forget_stop()
            if self._is_behind(step):
                self._stepper.step() if self._stepper.has_open_step else None
            else:
                self._begin_again()
            self._go_on(step)

    def _refuse_rewind(self, step: object) -> None:
        """Before anything has changed, and while the background still runs."""
        with self._stepper.turn():
            self._known_step(step)
            self._refuse_lasting_tier("rewind", "lab.fork(external=None) makes a second lab without it")

    def _is_behind(self, step: int) -> bool:
        """True when the step can be reached from here: nothing has to be taken back for it."""
        if self._inputs.had_accident:
            return False
        now = self._stepper.engine.num_finished_steps
        return now < step or (now == step and not self._stepper.has_open_step and not self._has_later_inputs(step))

    def _has_later_inputs(self, step: int) -> bool:
        return any(given.num_steps > step for given in self._inputs.done)

    def _begin_again(self) -> None:
        self._stepper.engine.transfers.stop()
        with self._inputs.taken_back():
            self._stepper.drop_open_step()
            if self.external is not None:
                self.external.close()
                self.external.bind(self._tier_name)
            self._stepper.restart()

    def _go_on(self, step: int) -> None:
        """Steps and inputs up to a step; whatever ends it early leaves the lab between two steps, and says so."""
        try:
            rerun(self._stepper, self._inputs, step)
        except BaseException as error:
            reached = self._stepper.engine.num_finished_steps
            told = f"The lab stands after step {reached} of {step}, as it did then; lab.rewind({step}) goes on."
            error.add_note(told)
            raise

    def _known_step(self, step: object) -> int:
        newest = self._inputs.num_known_steps
        if not is_single_int(step) or not 0 <= step <= newest:  # type: ignore[operator]
            taken = f"{newest} step{'s' * (newest != 1)}"
            raise ConfigError(f"step must be a number from 0 to {newest}: this lab has taken {taken}, got {step!r}")
        return int(step)  # type: ignore[call-overload, no-any-return]

    def _refuse_lasting_tier(self, what: str, instead: str) -> None:
        """The tier has to be empty when the steps are taken again, as it was at first."""
        if self.external is None:
            return
        if self.settings.external != "host":
            raise ConfigError(
                f"{what}() takes the steps again from an empty external tier, and {self.external.describe()} keeps "
                f"what it holds: {instead}"
            )
        if self._tier_was_used:
            warn(f"reset() has kept the host tier's blocks; {what}() begins without them, and may go another way",
                 stacklevel=4)  # fmt: skip

    # -- stops ---------------------------------------------------------------------------------------------------------

    def break_on(self, kind: type[Event] | str | Callable[[Event], object] | None = None, **fields: Any) -> Breakpoint:
        """Have a run stop after the step in which something happens. `close()` the breakpoint to wait no more.

        kind: a kind of event, itself or by name, whose fields have the values given (BlockEvicted, block_id=3); a
        function of the event that is true; or "violation", for the first rule that is seen broken. Fields alone: any
        event that has them. A request may be given by its letter ("A"), a hash by its first digits ("0:ab12"). run,
        start, generate, stream and step(n) stop; `stopped_at` tells where, and the views stand at the event. TypeError
        for a field, and for a kind, that there is not; ConfigError for a value that the field cannot have.
        """
        self._stepper.refuse_if_closed()
        wanted = condition(kind, fields, self._bounds)
        if wanted.kinds == (ViolationFound,) and self._watch is None:
            raise ConfigError("nothing looks for violations: this lab was made with check=False")
        return self._breakpoints.add(wanted)

    @property
    def _bounds(self) -> Bounds:
        has_own_hashes = self.parts.hash_chain.link is not HashChain.link
        num_hash_digits = None if has_own_hashes else 2 * len(HashChain().link(b"", ()))
        return Bounds(self.config.num_blocks, len(self.config.groups), num_hash_digits)

    @property
    def breakpoints(self) -> tuple[Breakpoint, ...]:
        """Those that are waiting, oldest first."""
        return self._breakpoints.open

    @property
    def stopped_at(self) -> Stop | None:
        """The breakpoint that the newest run or step has met first, with its event and a sentence; None for none."""
        return self._breakpoints.stop


def _is_failure_of_parts(given: Input) -> bool:
    return isinstance(given, BrokenStep) and given.failed is not None and not given.by_runner
