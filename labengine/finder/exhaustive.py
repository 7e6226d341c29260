"""Exhaustive search: every workload of a scope, the shortest first."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from sys import getsizeof

from labengine.config import ConfigError
from labengine.finder import limits
from labengine.finder.judgement import Case, Judgement
from labengine.finder.liveness import drain
from labengine.finder.operations import Operation, Workload, is_possible
from labengine.finder.sandbox import Finding, Mark, Sandbox
from labengine.finder.scopes import Scope


@dataclass(slots=True)
class Progress:
    """Counts of one complete search."""

    generated: int = 0
    """States reached, one per operation tried."""
    distinct: int = 0
    queue_left: int = 0
    depth: int = 0
    exhausted: bool = False
    operations: set[str] = field(default_factory=set)
    """Kinds of operations tried."""
    is_full: bool = False
    """True if the states filled the memory, so that the search ended before its scope did."""


_KEY_BYTES = 48
_QUEUED_BYTES = 40


class ExhaustiveSearch:
    """Breadth first through the states of a scope: the first finding is one of the shortest workloads.

    A state is stored as the operation that led to it and the number of its predecessor. To expand it, the sandbox walks
    there from the state expanded last, undoing operations up to their common ancestor.
    """

    def __init__(self, scope: Scope, judgement: Judgement, *, drains: bool = True) -> None:
        """drains: also take steps to the end from each new state; a finding there may not be the shortest."""
        self.scope = scope
        self.progress = Progress(distinct=1)
        self._judgement = judgement
        self._drains = drains
        self._sandbox = self._empty_sandbox()
        self._seen = {self._sandbox.key()}
        self._ending: set[int] = set()
        """States from which steps alone lead to the end."""
        self._parents, self._operations = array("q", [-1]), array("h", [-1])
        self._numbers: dict[Operation, int] = {}
        self._path: list[tuple[int, Mark]] = []
        """The states from the root to the sandbox's present one, each with the mark before its operation."""

    def findings(self) -> Iterator[tuple[Finding, Case] | None]:
        """Yield each finding with its case, and None after each expanded state, so that the caller can stop."""
        frontier = [0]
        while frontier and self.progress.depth < self.scope.max_operations:
            self.progress.depth += 1
            reached: list[int] = []
            for place, state in enumerate(frontier):
                self.progress.queue_left = len(frontier) - place - 1 + len(reached)
                yield from self._expand(state, reached)
                yield None
                if self._num_bytes > limits.TABLE_BYTES:
                    self.progress.is_full = True
                    return
            frontier = reached
        self.progress.queue_left = 0
        self.progress.exhausted = True

    @property
    def _num_bytes(self) -> int:
        """Memory of the known states and of those yet to expand."""
        tables = sum(map(getsizeof, (self._seen, self._ending, self._parents, self._operations)))
        num_keys = len(self._seen) + len(self._ending)
        return tables + num_keys * _KEY_BYTES + self.progress.queue_left * _QUEUED_BYTES

    def _expand(self, state: int, reached: list[int]) -> Iterator[tuple[Finding, Case]]:
        self._walk_to(state)
        notes = self._judgement.notes
        before = self._workload(state) if notes else ()
        mark = self._sandbox.mark()
        engine = self._sandbox.engine
        for operation in self.scope.operations(engine.num_added, engine.num_finished_steps):
            if not is_possible(operation, self._sandbox.engine):
                continue
            for note in notes:
                note(Case(self.scope, (*before, operation)))
            self.progress.generated += 1
            self.progress.operations.add(operation.what)
            try:
                finding = self._sandbox.do(operation)
            except ConfigError:  # these parts refuse the request
                continue
            if finding is None and (key := self._sandbox.key()) not in self._seen:
                self._seen.add(key)
                reached.append(len(self._parents))
                self._parents.append(state)
                self._operations.append(self._number(operation))
                self.progress.distinct += 1
                finding = self._drained() if self._drains else None
            if finding is not None:
                case = Case(self.scope, (*self._workload(state), operation))
                if (found := self._judgement.of(case)) is not None:
                    yield found
            if finding is not None or not self._sandbox.undo(mark):
                self._rebuild(state)
                mark = self._sandbox.mark()

    def _drained(self) -> Finding | None:
        """Take steps to the end, or to a state that is known to reach the end."""
        finding, _ = drain(self._sandbox, self._ending)
        return finding

    def _empty_sandbox(self) -> Sandbox:
        """Return a sandbox that does not count costs, which are for whole runs."""
        sandbox = self._judgement.sandbox(self.scope)
        sandbox.tally.close()
        return sandbox

    def _number(self, operation: Operation) -> int:
        return self._numbers.setdefault(operation, len(self._numbers))

    def _workload(self, state: int) -> Workload:
        by_number = list(self._numbers)
        return tuple(by_number[self._operations[number]] for number in self._chain(state))

    def _chain(self, state: int) -> list[int]:
        chain = []
        while state > 0:
            chain.append(state)
            state = self._parents[state]
        return chain[::-1]

    def _walk_to(self, state: int) -> None:
        """Move the sandbox to a state: undo up to the common ancestor, and do the rest."""
        chain = self._chain(state)
        common = 0
        while common < min(len(chain), len(self._path)) and chain[common] == self._path[common][0]:
            common += 1
        if common < len(self._path):
            if not self._sandbox.undo(self._path[common][1]):
                self._rebuild(state)
                return
            del self._path[common:]
        self._go_on(chain[common:])

    def _go_on(self, states: list[int]) -> None:
        by_number = list(self._numbers)
        for number in states:
            self._path.append((number, self._sandbox.mark()))
            self._sandbox.do(by_number[self._operations[number]])

    def _rebuild(self, state: int) -> None:
        """Make a new sandbox and repeat everything, because undoing would not lead back."""
        self._sandbox = self._empty_sandbox()
        self._path = []
        self._go_on(self._chain(state))
