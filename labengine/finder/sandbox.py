"""A sandbox: an engine on the simulated model with every check, whose operations can be undone."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal

from labengine.check.slot_memory import SlotMemory
from labengine.check.watch import Watch
from labengine.config import ConfigError, EngineConfig
from labengine.core.connector import Connector
from labengine.core.editions import EDITIONS
from labengine.core.journal import Journal
from labengine.core.parts import Parts, parts_of
from labengine.core.proposer import Proposer
from labengine.core.request import ExtraKeys, Request
from labengine.engine.engine import Engine
from labengine.engine.simulated import SimulatedRunner
from labengine.engine.step_report import StepReport
from labengine.events import DecisionDiffered
from labengine.finder.limits import NUM_STEPS
from labengine.finder.operation_log import OperationLog, Past
from labengine.finder.operations import Add, Branch, Fork, Operation, Repeat, Rewind, TakeStep, Workload, is_possible
from labengine.finder.repeats import RepeatError, refuse_difference
from labengine.finder.state_key import attributes_of, state_key
from labengine.finder.tally import Tally
from labengine.isolation.endings import OF_THE_USER, num_copies, refusing_copies, said_of
from labengine.isolation.limits import EndlessOperationError, refuse_alarm, restart_clock
from labengine.record.hooks import Hooks
from labengine.record.snapshot import Snapshot
from labengine.record.violation import Violation, gravest_first
from labengine.session.overrides_in_use import merged

Kind = Literal["rule", "raises", "liveness", "differs", "worse"]


@dataclass(frozen=True, slots=True)
class Finding:
    """An error in the last operation of a workload."""

    kind: Kind
    message: str
    rule: str = ""
    """The broken rule, or the name of the exception."""
    ends_process: bool = False
    """True if the operation ends its process."""
    differed: str = ""
    """The first decision of an override that differed from production."""


class UndoableJournal(Journal):
    """A journal that keeps a step's inverses after its commit, so that steps can be undone one by one."""

    __slots__ = ("_base",)

    def __init__(self) -> None:
        super().__init__()
        self._base = 0

    def commit(self) -> None:
        """End a step, and keep its inverses."""
        self._base = len(self)

    open = commit

    def rollback(self) -> None:
        """Undo everything since `open`."""
        self._rollback_to(self._base)

    def undo_to(self, length: int) -> None:
        """Undo everything since the journal had this length."""
        self._rollback_to(length)
        self._base = length


@dataclass(frozen=True, slots=True)
class Mark:
    """A state to return to: the journal's length, and values that the journal does not hold."""

    key: int
    journal_length: int
    memory: SlotMemory
    attributes: tuple[int, int, StepReport]
    chains: tuple[tuple[Request, int, int, int, int], ...]
    """Per request, the lengths of its hash chain, links and prefixes, and the boundary of its last look-up: they change
    without an entry."""
    engine: Engine
    num_done: int
    """Number of operations played."""


def raised(error: BaseException) -> Finding:
    """Return the finding for an exception of a part."""
    return Finding("raises", said_of(error), type(error).__name__, ends_process=not isinstance(error, Exception))


class Sandbox:
    """An engine on parts, with checks. After a violation or an exception, make a new one."""

    def __init__(
        self,
        config: EngineConfig,
        parts: Parts,
        make_connector: Callable[[], Connector] | None = None,
        proposer: Proposer | None = None,
        *,
        repeats: bool = False,
        overrides: dict[str, bool | None] | None = None,
        passed_over: Collection[str] = (),
    ) -> None:
        """repeats: allow forks and rewinds, for which the states before steps are kept.

        passed_over: rules whose violations do not end a run. overrides: receives the effect of the parts' overrides, as
        Watch.overrides.
        """
        self.hooks = Hooks()
        self.tally = Tally(self.hooks)
        self.differed = ""
        """The first decision of an override that differed from production, in words."""
        self._overrides = {} if overrides is None else overrides
        self.hooks.subscribe(self._note_difference, DecisionDiffered)
        self.watch = Watch(self.hooks)
        self._make, self._repeats = (config, parts, make_connector, proposer), repeats
        self._passed_over = passed_over
        self._begin()
        self.on_begin: Callable[[int], object] = lambda number: None
        """Called by `run` with the number (from 1) of each operation before it is done."""
        self._known = _attributes_of_production(config)

    def _begin(self) -> None:
        """Install an empty engine."""
        config, parts, make_connector, proposer = self._make
        restart_clock()  # a search makes many engines before its first operation: in a browser that takes seconds
        self.watch.close()
        self.journal = UndoableJournal()
        connector = None if make_connector is None else make_connector()
        runner: Any = self.watch.wrap(SimulatedRunner())
        self.engine = Engine(config, runner, parts, self.hooks, connector, self.journal, proposer)
        self.watch.follow(self.engine)
        self.played = OperationLog(self.engine, keeps_states=self._repeats)

    def do(self, operation: Operation) -> Finding | None:
        """Do an operation; return its finding. Raises ConfigError for a request that never fits."""
        before = num_copies()
        try:
            with refusing_copies():
                finding = self._done(operation)
        except OF_THE_USER:
            raise
        except EndlessOperationError as error:
            return Finding("liveness", f"{operation} does not return: {error}", "endless")
        except BaseException as error:  # a part's KeyboardInterrupt and SystemExit too
            if isinstance(error, ConfigError) and isinstance(operation, (Add, Branch)):
                raise  # refusing a request that never fits this pool, or an unsupported fork, is no fault
            return self._raised(error)
        if num_copies() > before:
            return Finding("raises", f"{operation} forks the process", "fork")
        return finding or self._violated(self.watch.violations)

    def _done(self, operation: Operation) -> Finding | None:
        if isinstance(operation, (Rewind, Fork)):
            return self._repeat(operation) if self._repeats else None
        engine = self.engine
        restart_clock()
        with self.played.noting(operation):
            operation.do(engine)
        refuse_alarm()
        if not isinstance(operation, Add):
            self.watch.check(engine.snapshot())
            self.tally.note_step(engine)
            self._overrides.update(merged(self._overrides, self.watch.overrides))
        return None

    def _repeat(self, operation: Repeat) -> Finding | None:
        if isinstance(operation, Rewind):
            return self._replay(self.played.until(operation.step), f"a rewind to step {operation.step}")
        before = self.engine.snapshot()
        twin = Sandbox(*self._make)
        finding = twin._replay((self.played.operations, before), "a fork")
        for _ in range(NUM_STEPS):
            if finding is not None or twin.engine.scheduler.is_idle:
                break
            finding = twin.do(TakeStep())
        return finding or self._is_elsewhere(before, "the lab of a fork")

    def _replay(self, past: Past, what: str) -> Finding | None:
        """Repeat the operations of the past on a new engine; return the finding, also for a state that differs."""
        operations, before = past
        if len(self.played):
            self._begin()
        for one in operations:
            if is_possible(one, self.engine) and (finding := self.do(one)) is not None:
                return finding
        return self._is_elsewhere(before, what)

    def _is_elsewhere(self, before: Snapshot, what: str) -> Finding | None:
        try:
            refuse_difference(before, self.engine.snapshot(), what)
        except RepeatError as error:
            return Finding("rule", str(error), "repeat")
        return None

    def run(self, workload: Workload) -> tuple[Finding | None, int]:
        """Do operations from the present state on; return the finding, and the number of operations begun.

        Impossible operations are left out.
        """
        for number, operation in enumerate(workload, 1):
            if is_possible(operation, self.engine):
                self.on_begin(number)
                finding = self.do(operation)
                if finding is not None:
                    return finding, number
        return None, len(workload)

    def mark(self) -> Mark:
        """Return a mark of the present state, for `undo`."""
        engine = self.engine
        return Mark(
            self.key(),
            len(self.journal),
            self.watch.memory.duplicate(),
            (engine.num_added, engine.step_number, engine.report),
            tuple(
                (one, len(one.block_hashes), len(one.links), len(one.prefixes), one.shared_prefix_boundary)
                for one in engine.requests.values()
            ),
            engine,
            len(self.played),
        )

    def key(self) -> int:
        """Return the state's key, equal for states that differ only in names."""
        return state_key(self.engine.scheduler, self.watch.memory, self._known)

    def undo(self, mark: Mark) -> bool:
        """Return to a state. False if another state results, because a part keeps state outside of the journal."""
        if mark.engine is not self.engine:
            return False
        self.played.undo_to(mark.num_done)
        self.journal.undo_to(mark.journal_length)
        self.engine.num_added, self.engine.step_number, self.engine.report = mark.attributes
        for request, num_hashes, num_links, num_prefixes, boundary in mark.chains:
            request.shared_prefix_boundary = boundary
            del request.block_hashes[num_hashes:], request.links[num_links:], request.prefixes[num_prefixes:]
        self.watch.follow(self.engine, mark.memory.duplicate())
        return not self.journal.failures and self.engine.scheduler.external.connector is None and self.key() == mark.key

    def _note_difference(self, event: DecisionDiffered) -> None:
        about = "" if event.request_id < 0 else f" about request {event.request_id}"
        answers = f"{event.decided} instead of {event.instead_of}"
        self.differed = self.differed or f"{event.method} decides differently from {event.replaces}{about}: {answers}"

    def _raised(self, error: BaseException) -> Finding:
        violated = self._violated(self.watch.violations)
        return violated or raised(error)

    def _violated(self, violations: list[Violation]) -> Finding | None:
        judged = [one for one in violations if one.rule not in self._passed_over]
        if not judged:
            return None
        first = gravest_first(judged)[0]
        return Finding("rule", f"{self.breach}{first.message}", first.rule)

    @property
    def breach(self) -> str:
        """The start of a message on a request that found blocks of another with different extra keys; else empty."""
        requests = self.engine.requests
        for finder, owner in self.tally.sharing:
            if finder in requests and owner in requests:
                one, other = requests[finder].extra_keys, requests[owner].extra_keys
                if one != other:
                    whose = f"request {finder} ({_tenant(one)}) finds blocks of request {owner} ({_tenant(other)})"
                    return f"a breach between tenants: {whose}; "
        return ""


def _tenant(keys: ExtraKeys) -> str:
    return ", ".join(f"{name}={value}" for name, value in keys) or "without keys"


@cache
def _attributes_of_production(config: EngineConfig) -> dict[type, frozenset[str]]:
    """Return the attributes of each class of production's parts: those of new objects, and those set later."""
    found: dict[type, frozenset[str]] = {}
    for parts in EDITIONS.values():
        try:
            scheduler = parts.assemble(config, Hooks(), Journal())
        except ConfigError:  # the edition does not support several groups
            continue
        for part in parts_of(scheduler):
            for cls in type(part).__mro__[:-1]:
                later = {name for name in dir(cls) if isinstance(getattr(cls, name), (cached_property, bool))}
                found[cls] = found.get(cls, frozenset()) | attributes_of(part) | later
    return found
