"""Operations: the calls by which a workload changes an engine. A workload is a tuple of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from labengine.config import SamplingParams
from labengine.core.request import ExtraKeys, Image, RequestStatus
from labengine.engine.engine import Engine
from labengine.engine.request_options import RequestOptions, salted
from labengine.finder.repeats import fork, rewind
from labengine.lab import Lab
from labengine.session.history.broken_steps import break_off, break_off_at, break_off_step, break_off_step_at
from labengine.session.history.inputs import BrokenStep

BrokenPhase = Literal["schedule", "forward", "sample"]


@dataclass(frozen=True, slots=True)
class Add:
    """A request is queued. Its tokens depend on their positions alone, so that equal prompts get equal answers."""

    token_ids: tuple[int, ...]
    max_tokens: int = 1
    salt: str | None = None
    keys: ExtraKeys = ()
    """Extra keys, such as an adapter's name."""
    priority: int = 0
    n: int = 1
    """Number of answers to the prompt, with different seeds and so different tokens."""
    beams: int = 1
    images: tuple[Image, ...] = ()

    @property
    def what(self) -> str:
        """The queued requests' name in the report."""
        return "beam searches" if self.beams > 1 else "several answers" if self.n > 1 else "requests"

    @property
    def num_requests(self) -> int:
        """Number of requests: one per answer, or per beam."""
        return max(self.n, self.beams)

    def do(self, engine: Engine) -> None:
        """Queue the requests. Raises ConfigError for requests that never fit, or that these parts do not support."""
        if self.n > 1:
            engine.scheduler.refuse_forks(self.n)
        leader, keys = None, salted(self.keys, self.salt)
        for number in range(self.num_requests):
            seed = None if self.beams > 1 else number  # a beam search draws no tokens
            sampling = SamplingParams(max_tokens=self.max_tokens, ignore_eos=True, seed=seed, beams=self.beams)
            options = RequestOptions(sampling, keys, self.priority, self.images)
            added = engine.add(self.token_ids, options, leader)
            leader = added if leader is None else leader

    def play(self, lab: Lab) -> None:
        """Do the same in a lab."""
        lab.add(token_ids=self.token_ids, max_tokens=self.max_tokens, **self._options)

    @property
    def _options(self) -> dict[str, Any]:
        """Further keywords of Lab.add."""
        given = {
            "cache_salt": self.salt,
            "extra_keys": dict(self.keys),
            "priority": self.priority,
            "n": self.n if self.n > 1 else None,
            "beams": self.beams if self.beams > 1 else None,
            "images": {image.start: (image.identifier, image.length) for image in self.images},
        }
        seed = {} if self.beams > 1 else {"seed": 0}
        return {**seed, "ignore_eos": True, **{name: value for name, value in given.items() if value}}

    def __str__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self._options.items())
        return f"lab.add(token_ids={list(self.token_ids)}, max_tokens={self.max_tokens}{options})"


@dataclass(frozen=True, slots=True)
class TakeStep:
    """One step is taken."""

    what: ClassVar[str] = "steps"

    def do(self, engine: Engine | Lab) -> None:
        """Take the step."""
        engine.step()

    play = do

    def __str__(self) -> str:
        return "lab.step()"


@dataclass(frozen=True, slots=True)
class BreakOff:
    """A step is interrupted in a phase and rolled back. See labengine.scripts.break_off."""

    what: ClassVar[str] = "steps interrupted between phases"
    reached: BrokenPhase

    def do(self, engine: Engine) -> None:
        """Take the step up to the phase, and roll it back."""
        break_off_step(engine, BrokenStep(engine.num_finished_steps, self.reached, "KeyboardInterrupt"))

    def play(self, lab: Lab) -> None:
        """Do the same in a lab."""
        break_off(lab.session.stepper, self.reached)

    def __str__(self) -> str:
        return f"break_off(lab, {self.reached!r})"


@dataclass(frozen=True, slots=True)
class BreakOffAt:
    """A step ends at an event inside it, because of an interrupt or a part that raises, and is rolled back.

    See labengine.scripts.break_off_at.
    """

    what: ClassVar[str] = "steps that are interrupted or raise at an event"
    kind: str
    number: int = 1
    reason: str = "KeyboardInterrupt"

    def do(self, engine: Engine) -> None:
        """Take the step up to the event, and roll it back."""
        break_off_step_at(engine, (self.kind, self.number), self.reason)

    def play(self, lab: Lab) -> None:
        """Do the same in a lab."""
        break_off_at(lab.session.stepper, self.kind, self.number, self.reason)

    def __str__(self) -> str:
        return f"break_off_at(lab, {self.kind!r}, {self.number}, {self.reason!r})"


@dataclass(frozen=True, slots=True)
class Rewind:
    """The engine goes back to where step `step + 1` was about to begin. See labengine.scripts.rewind."""

    what: ClassVar[str] = "rewinds"
    step: int

    def play(self, lab: Lab) -> None:
        """Rewind a lab. Raises RepeatError if it reaches a different state."""
        rewind(lab, self.step)

    def __str__(self) -> str:
        return f"rewind(lab, {self.step})"


@dataclass(frozen=True, slots=True)
class Fork:
    """A second engine repeats all inputs, then runs to the end. See labengine.scripts.fork."""

    what: ClassVar[str] = "forks"

    def play(self, lab: Lab) -> None:
        """Fork a lab, and run the fork. Raises RepeatError if the lab or the fork reaches a different state."""
        fork(lab)

    def __str__(self) -> str:
        return "fork(lab)"


@dataclass(frozen=True, slots=True)
class Abort:
    """A request is aborted."""

    what: ClassVar[str] = "aborts"
    request_id: int

    def do(self, engine: Engine | Lab) -> None:
        """Abort the request."""
        engine.abort(self.request_id)

    play = do

    def __str__(self) -> str:
        return f"lab.abort({self.request_id})"


@dataclass(frozen=True, slots=True)
class Branch:
    """A request continues another one from its present state: it waits for the other's tokens, or shares its blocks.

    A different seed gives it different tokens from there on.
    """

    what: ClassVar[str] = "branches"
    request_id: int

    def do(self, engine: Engine | Lab) -> None:
        """Queue the branch. Raises ConfigError if the parts do not support forks."""
        engine.branch(self.request_id, seed=1)

    play = do

    def __str__(self) -> str:
        return f"lab.branch({self.request_id}, seed=1)"


@dataclass(frozen=True, slots=True)
class Reset:
    """The prefix cache is reset, unless a request holds blocks."""

    what: ClassVar[str] = "resets of the prefix cache"

    def do(self, engine: Engine | Lab) -> None:
        """Reset the prefix cache."""
        engine.reset_prefix_cache()

    play = do

    def __str__(self) -> str:
        return "lab.reset_prefix_cache()"


EngineOperation = Add | TakeStep | BreakOff | BreakOffAt | Abort | Branch | Reset
Repeat = Rewind | Fork
Operation = EngineOperation | Repeat
Workload = tuple[Operation, ...]


_OTHERS = (TakeStep, BreakOff, BreakOffAt, Abort, Branch, Reset, Rewind, Fork)
WHAT = ("requests", "several answers", "beam searches", *(kind.what for kind in _OTHERS))
"""Names of operations in a report, in its order."""


def num_requests(operation: Operation) -> int:
    """Return the number of requests that an operation queues."""
    match operation:
        case Add():
            return operation.num_requests
        case Branch():
            return 1
        case _:
            return 0


def is_possible(operation: Operation, engine: Engine) -> bool:
    """Return False for an operation that would change nothing, or that names a request that is not open."""
    match operation:
        case Abort(request_id) | Branch(request_id):
            request = engine.requests.get(request_id)
            if request is None or request.status is RequestStatus.FINISHED:
                return False
            return isinstance(operation, Abort) or request.sampling.beams == 1
        case TakeStep() | BreakOff() | BreakOffAt():
            return not engine.scheduler.is_idle
        case Rewind(step):
            return step < engine.num_finished_steps and engine.scheduler.external.connector is None
        case Fork():
            return engine.num_added > 0 and engine.scheduler.external.connector is None
        case Reset():
            pool = engine.scheduler.manager.pool
            return bool(pool.prefix_map) and pool.num_free == pool.num_usable
        case _:
            return True
