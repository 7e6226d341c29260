"""What was put into an engine, and when: enough to have another one go the same way, step by step.

An engine decides by its inputs alone, so these are all that a fork or a rewind needs: requests, aborts, resets of the
prefix cache, and steps that were broken off, for these leave blocks behind whose content is trusted no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labengine.config import SamplingParams
from labengine.core.request import ExtraKeys
from labengine.engine.failure import is_of_runner, told_failure
from labengine.events import StepFailed, StepRolledBack
from labengine.hooks import Hooks
from labengine.session.time.packed_tokens import unpack

if TYPE_CHECKING:
    from labengine.engine.engine import Phase
    from labengine.session.stepper import Stepper


@dataclass(frozen=True, slots=True)
class Input:
    """Something that was done to an engine between two steps. num_steps: the steps that had finished before."""

    num_steps: int


@dataclass(frozen=True, slots=True)
class AddInput(Input):
    """A request was queued. Its id is the number of requests added before it."""

    packed_tokens: bytes
    """Its prompt; see packed_tokens.py."""
    sampling: SamplingParams
    cache_salt: str | None = None
    extra_keys: ExtraKeys = ()

    @property
    def token_ids(self) -> Sequence[int]:
        """The prompt."""
        return unpack(self.packed_tokens)


@dataclass(frozen=True, slots=True)
class AbortInput(Input):
    """A request was ended before its time."""

    request_id: int


@dataclass(frozen=True, slots=True)
class ResetInput(Input):
    """The prefix cache was reset."""


@dataclass(frozen=True, slots=True)
class BrokenStep(Input):
    """A step was broken off and taken back: interrupted, failed, or left open and dropped.

    reached: how far it had come. "schedule": blocks were loaded; "forward": the forward pass had begun; "sample": it
    was done, and its blocks were saved; None: it has left nothing behind.
    """

    reached: Phase | None
    reason: str
    """The name of what ended it."""
    failed: StepFailed | None = None
    """What told of it, where it was no interrupt."""
    by_runner: bool = False
    """True where the model's runner raised it, as when a device is gone; the scheduler's parts decide by their inputs
    alone, and will raise it again."""


class Inputs:
    """The inputs of one engine in their order, and those that a rewind took back, until something else is done."""

    def __init__(self, stepper: Stepper, hooks: Hooks) -> None:
        self._stepper = stepper
        self.clear()
        hooks.subscribe(self._note_broken_step, StepRolledBack)

    def clear(self) -> None:
        """For an engine that is empty."""
        self._known: list[Input] = []
        self._num_done = 0
        self._num_known_steps = 0
        self._accident: BrokenStep | None = None
        self._is_rerunning = self._is_emptying = False

    @property
    def done(self) -> tuple[Input, ...]:
        """What the engine was given so far. Only in a turn, as everything here."""
        return tuple(self._known[: self._num_done])

    @property
    def next(self) -> Input | None:
        """What comes next, of the inputs that were taken back."""
        return self._known[self._num_done] if self._num_done < len(self._known) else None

    @property
    def num_known_steps(self) -> int:
        """The newest step that was ever reached on this way."""
        self._follow()
        return self._num_known_steps

    def until(self, step: int) -> tuple[Input, ...]:
        """All that was done before step `step + 1` began, whether or not it was taken back."""
        self._follow()
        return tuple(known for known in self._known if known.num_steps <= step)

    def note(self, given: Input) -> None:
        """Something new was done: what had been taken back is forgotten."""
        self._follow()
        del self._known[self._num_done :]
        self._known.append(given)
        self._num_done = len(self._known)
        self._num_known_steps, self._accident = self._now, None

    def note_done(self) -> None:
        """The next one of those taken back was done again."""
        self._num_done += 1

    @contextmanager
    def taken_back(self) -> Iterator[None]:
        """All of them, while the engine is emptied; a step that is left open then is no input."""
        self._follow()
        self._known = [known for known in self._known if known is not self._accident]
        self._num_done, self._accident, self._is_emptying = 0, None, True
        try:
            yield
        finally:
            self._is_emptying = False

    def give(self, inputs: tuple[Input, ...]) -> None:
        """Inputs of another engine, to be done here: as if they had been taken back."""
        self._known, self._num_done = list(inputs), 0

    @contextmanager
    def rerunning(self) -> Iterator[None]:
        """While what was taken back is done again, a step that is broken off is an accident, and nothing new."""
        self._is_rerunning = True
        try:
            yield
        finally:
            self._is_rerunning = False
            self._num_known_steps = max(self._num_known_steps, self._now)

    @property
    def had_accident(self) -> bool:
        """True when a step of a re-run was broken off: the state is sound, but not what the inputs alone would give."""
        return self._accident is not None

    @property
    def _now(self) -> int:
        return self._stepper.engine.num_finished_steps

    def _follow(self) -> None:
        """Steps taken since: past an input that was taken back, there is no way to it any more."""
        following = self.next
        if following is not None and following.num_steps < self._now and not self._is_rerunning:
            del self._known[self._num_done :]
            self._num_known_steps = self._now
        self._num_known_steps = max(self._num_known_steps, self._now)

    def _note_broken_step(self, event: StepRolledBack) -> None:
        engine = self._stepper.engine
        reached, failure = engine.reached, engine.failure
        if self._is_emptying or engine.begins_anew or self._is_doing_again(event):
            return  # what the engine does by itself, it does again by itself
        if reached is None and failure is None:
            return
        told = None if failure is None else told_failure(event.step, failure)
        by_runner = failure is not None and is_of_runner(failure)
        broken = BrokenStep(event.step - 1, reached, event.reason, told, by_runner)
        if not self._is_rerunning:
            self.note(broken)
            return
        self._known.insert(self._num_done, broken)
        self._num_done += 1
        self._accident = broken

    def _is_doing_again(self, event: StepRolledBack) -> bool:
        """True when a step is broken off because it once was."""
        given = self.next if self._is_rerunning else None
        return isinstance(given, BrokenStep) and given.num_steps < event.step
