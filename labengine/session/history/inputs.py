"""The inputs of an engine, each with the step before which it came: enough to repeat a run exactly.

An engine's decisions depend on its inputs alone, so a fork or a rewind needs nothing else: requests, aborts, resets of
the prefix cache, and steps that were rolled back, because these leave blocks whose content is no longer trusted.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from labengine.config import ConfigError
from labengine.engine.failure import failure_event, is_of_runner
from labengine.engine.request_options import RequestOptions
from labengine.engine.step_report import Phase
from labengine.events import StepFailed, StepRolledBack
from labengine.record.hooks import Hooks
from labengine.session.stepper import Stepper
from labengine.system.code_roles import Role, plays

plays(__name__, Role.FOLLOWS_EVENTS)

_CODES = ((2**16, "H"), (2**32, "I"), (2**64, "Q"))
"""Ids below each bound, and the array code that holds them: 2, 4 and 8 bytes."""


@dataclass(frozen=True, slots=True)
class Input:
    """One change of an engine between two steps. num_steps: steps finished before it."""

    num_steps: int


@dataclass(frozen=True, slots=True)
class AddInput(Input):
    """A request was queued. Its id is the number of requests added before it."""

    packed_tokens: bytes
    """The prompt, packed, because inputs live as long as the lab."""
    options: RequestOptions
    leader_id: int | None = None
    """The request that it forks from once the prompt is computed, as one of several answers."""

    @property
    def token_ids(self) -> Sequence[int]:
        """Token ids of the prompt."""
        return unpack(self.packed_tokens)


@dataclass(frozen=True, slots=True)
class BranchInput(AddInput):
    """A request was branched. token_ids: the new request's first tokens, which may include generated ones."""

    request_id: int = -1
    """The request that was branched."""
    seed: int | None = None
    token_id: int | None = None
    """Replaces its newest token; None keeps it."""


@dataclass(frozen=True, slots=True)
class FillInput(Input):
    """The external tier was filled with a prompt's full blocks, as if another engine had saved them."""

    packed_tokens: bytes

    @property
    def token_ids(self) -> Sequence[int]:
        """Token ids of the prompt."""
        return unpack(self.packed_tokens)


@dataclass(frozen=True, slots=True)
class AbortInput(Input):
    """A request was aborted."""

    request_id: int


@dataclass(frozen=True, slots=True)
class HandOverInput(Input):
    """A request was handed over to another lab."""

    request_id: int
    lab: str


@dataclass(frozen=True, slots=True)
class ReceiveInput(AddInput):
    """A request came from another lab, with KV that this lab's inputs cannot compute. Tokens as in a BranchInput."""

    request_id: int = -1
    lab: str = ""


@dataclass(frozen=True, slots=True)
class ResetInput(Input):
    """The prefix cache was reset."""


@dataclass(frozen=True, slots=True)
class BrokenStep(Input):
    """A step was rolled back: interrupted, failed, or left open and dropped.

    reached: the last phase begun. "schedule": blocks were loaded; "forward": the forward pass had begun; "sample": the
    forward pass was finished, and its blocks were saved; None: the step had no lasting effect.
    """

    reached: Phase | None
    reason: str
    """The name of the exception that ended the step."""
    failed: StepFailed | None = None
    """The event of the failure; None for an interrupt."""
    by_runner: bool = False
    """True if the model's runner raised it, for example because a device is lost. The scheduler's parts depend on
    their inputs alone, and raise it again by themselves."""
    ends_at: tuple[str, int] | None = None
    """Kind and number of the step's event at which it was broken off on purpose, counted from 1; None for any other."""

    @property
    def is_failure_of_parts(self) -> bool:
        """True if a part of the core raised, and not the runner."""
        return self.failed is not None and not self.by_runner and self.ends_at is None


class Inputs:
    """The inputs of one engine in order: those done, and those undone by a rewind.

    A new input discards the undone ones. Every call needs the stepper's lock.
    """

    def __init__(
        self, stepper: Stepper, hooks: Hooks, fill: Callable[[FillInput], object], limit: int | None = None
    ) -> None:
        """fill: repeats a FillInput on the current engine. limit: inputs that are kept; None: all."""
        self._stepper, self._limit = stepper, limit
        self.fill = fill
        self.clear()
        hooks.subscribe(self._note_broken_step, StepRolledBack)

    def clear(self) -> None:
        """Forget all inputs, because the engine is empty."""
        self.are_dropped = False
        """True once the limit was exceeded: all inputs are dropped, because a run is repeated from its first one."""
        self._known: list[Input] = []
        self._num_done = 0
        self._num_known_steps = 0
        self._accident: BrokenStep | None = None
        self._is_rerunning = self._is_emptying = False

    @property
    def kept(self) -> tuple[Input, ...]:
        """The inputs that the engine has had so far; empty if dropped."""
        return tuple(self._known[: self._num_done])

    @property
    def done(self) -> tuple[Input, ...]:
        """The inputs that the engine has had so far. Raises ConfigError if they are dropped."""
        self._refuse_dropped()
        return self.kept

    @property
    def repeatable(self) -> tuple[Input, ...]:
        """The inputs so far, to be repeated. Raises ConfigError if one involved a second lab."""
        return _of_one_lab(self.done)

    def _refuse_dropped(self) -> None:
        if self.are_dropped:
            raise ConfigError(
                f"a lab is repeated from its first input, but this lab dropped its inputs after {self._limit:,}: "
                "use Lab(keep_inputs=None) to keep all, or reset() to start over; events are still being recorded"
            )

    @property
    def next(self) -> Input | None:
        """The first undone input, or None."""
        return self._known[self._num_done] if self._num_done < len(self._known) else None

    @property
    def num_known_steps(self) -> int:
        """The newest step that these inputs have ever reached."""
        self._follow()
        return self._num_known_steps

    def until(self, step: int) -> tuple[Input, ...]:
        """Return the inputs that came before step `step + 1` began, undone or not.

        Raises ConfigError if they are dropped, or if one involved a second lab.
        """
        self._refuse_dropped()
        self._follow()
        return _of_one_lab(tuple(known for known in self._known if known.num_steps <= step))

    def note(self, new: Input) -> None:
        """Record a new input, and discard the undone ones."""
        self._follow()
        del self._known[self._num_done :]
        if not self.are_dropped:
            self._known.append(new)
        if self._limit is not None and len(self._known) > self._limit:
            self._known, self.are_dropped = [], True
        self._num_done = len(self._known)
        self._num_known_steps, self._accident = self._now, None

    def note_done(self) -> None:
        """Record that the first undone input was repeated."""
        self._num_done += 1

    @contextmanager
    def taken_back(self) -> Iterator[None]:
        """Undo all inputs, for a block that empties the engine: dropping its open step does not count as an input.

        If the block fails, the engine is as it was, and so are they.
        """
        self._follow()
        before = self._known, self._num_done, self._accident
        self._known = [known for known in self._known if known is not self._accident]
        self._num_done, self._accident, self._is_emptying = 0, None, True
        try:
            yield
        except BaseException:
            self._known, self._num_done, self._accident = before
            raise
        finally:
            self._is_emptying = False

    def expect(self, inputs: tuple[Input, ...]) -> None:
        """Adopt the inputs of another engine, as if they had been undone here."""
        self._known, self._num_done = list(inputs), 0

    @contextmanager
    def rerunning(self) -> Iterator[None]:
        """Repeat inputs inside the block: a step broken off there counts as an accident, not as a new input."""
        self._is_rerunning = True
        try:
            yield
        finally:
            self._is_rerunning = False
            self._num_known_steps = max(self._num_known_steps, self._now)

    @property
    def had_accident(self) -> bool:
        """True if a step of a rerun was broken off: the state is valid, but the inputs alone do not lead to it."""
        return self._accident is not None

    @property
    def _now(self) -> int:
        return self._stepper.engine.num_finished_steps

    def _follow(self) -> None:
        """Note the steps taken since. An undone input is discarded once the engine has passed its step."""
        following = self.next
        if following is not None and following.num_steps < self._now and not self._is_rerunning:
            del self._known[self._num_done :]
            self._num_known_steps = self._now
        self._num_known_steps = max(self._num_known_steps, self._now)

    def _note_broken_step(self, event: StepRolledBack) -> None:
        engine = self._stepper.engine
        reached, failure = engine.reached, engine.failure
        if self._is_emptying or engine.begins_anew or self._is_doing_again(event):
            return  # the engine repeats this by itself
        if reached is None and failure is None:
            return
        failed = None if failure is None else failure_event(event.step, failure)
        by_runner = failure is not None and is_of_runner(failure)
        broken = BrokenStep(event.step - 1, reached, event.reason, failed, by_runner, engine.ends_at)
        if not self._is_rerunning:
            self.note(broken)
            return
        self._known.insert(self._num_done, broken)
        self._num_done += 1
        self._accident = broken

    def _is_doing_again(self, event: StepRolledBack) -> bool:
        """True if a rerun breaks a step off on purpose, as the input says."""
        following = self.next if self._is_rerunning else None
        return isinstance(following, BrokenStep) and following.num_steps < event.step


def _of_one_lab(inputs: tuple[Input, ...]) -> tuple[Input, ...]:
    """Return inputs that one lab can repeat by itself. Raises ConfigError for a request that moved between labs."""
    moved = next((one for one in inputs if isinstance(one, HandOverInput | ReceiveInput)), None)
    if moved is None:
        return inputs
    where = f"went to {moved.lab}" if isinstance(moved, HandOverInput) else f"came from {moved.lab} with its KV"
    raise ConfigError(
        f"after step {moved.num_steps} request {moved.request_id} {where}: one lab cannot repeat that by itself. "
        f"Only earlier steps can be repeated; for later ones, recreate both labs and hand the request over"
    )


def pack(token_ids: Sequence[int]) -> bytes:
    """Pack token ids (0 <= id < 2**63): one byte for the array's code, then the array."""
    largest = max(token_ids, default=0)
    code = next(code for bound, code in _CODES if largest < bound)
    return code.encode() + array(code, token_ids).tobytes()


def unpack(packed: bytes) -> Sequence[int]:
    """Return the packed token ids."""
    return array(chr(packed[0]), packed[1:])
