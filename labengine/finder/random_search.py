"""Random search: long workloads in larger scopes, varying those with new sequences of events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from labengine.events import DecisionDiffered, Event, RequestAdded, StepStarted
from labengine.finder.judgement import Case, Judgement
from labengine.finder.operations import (
    Abort,
    Branch,
    BreakOff,
    Fork,
    Operation,
    Reset,
    Rewind,
    TakeStep,
    Workload,
    num_requests,
)
from labengine.finder.sandbox import Finding
from labengine.finder.scopes import Scope

MAX_KEPT = 400
"""Most workloads kept for variation."""


DISTURBED_EVERY = 8
"""One of this many workloads has steps that end inside, forks and rewinds, which most faults do not need."""


class RandomSearch:
    """Random workloads in several scopes, from a seed.

    A workload with a new pair of consecutive kinds of events is kept, and later workloads vary it.
    """

    def __init__(self, scopes: Sequence[Scope], judgement: Judgement, seed: int) -> None:
        self.num_workloads = 0
        self.num_operations = 0
        self.operations: set[str] = set()
        """Kinds of operations tried."""
        self._judgement = judgement
        disturbed = [scope for scope in scopes if scope.ends]
        plain = [scope for scope in scopes if not scope.ends]
        self._families = [RandomWorkloads(family, seed) for family in (plain, disturbed) if family]

    def findings(self) -> Iterator[tuple[Finding, Case] | None]:
        """Yield each finding with its case, and None for each workload without one, endlessly."""
        while True:
            self.num_workloads += 1
            workloads = self._families[-1 if self.num_workloads % DISTURBED_EVERY == 0 else 0]
            case = workloads.next()
            sandbox = self._judgement.sandbox(case.scope)
            pairs = EventPairs()
            sandbox.hooks.subscribe(pairs.note)
            found = self._judgement.confirmed(self._judgement.of(case, sandbox))
            self.num_operations += pairs.num_operations
            self.operations.update(operation.what for operation in case.workload)
            workloads.note(case, pairs.seen)
            yield found


class RandomWorkloads:
    """Random workloads in some scopes, with a separate random generator, so that other scopes do not change them."""

    def __init__(self, scopes: Sequence[Scope], seed: int) -> None:
        self._scopes = scopes
        self._random = Random(seed)
        self._pairs: set[tuple[object, object]] = set()
        self._kept: list[Case] = []

    def note(self, case: Case, pairs: set[tuple[object, object]]) -> None:
        """Keep a case with new pairs of events."""
        if not pairs <= self._pairs:
            self._pairs |= pairs
            self._kept.append(case)
            del self._kept[:-MAX_KEPT]

    def next(self) -> Case:
        """Return a new workload, or one that varies a kept one."""
        random = self._random
        if self._kept and random.random() < 0.4:
            kept = random.choice(self._kept)
            return Case(kept.scope, self._varied(kept.scope, list(kept.workload)))
        scope = random.choice(self._scopes)
        return Case(scope, self._fresh(scope))

    def _fresh(self, scope: Scope) -> Workload:
        random = self._random
        operations: list[Operation] = []
        num_wanted = random.randint(2, 2 * scope.max_requests)
        favourites = random.sample(scope.adds, min(len(scope.adds), random.randint(1, 4)))
        disturbance = random.choice((0.0, 0.0, 0.1, 0.3))
        num_added = 0
        while num_added < num_wanted:
            if random.random() < 0.5:
                branches = scope.branches and num_added > 0 and random.random() < 0.5
                operations.append(Branch(random.randrange(num_added)) if branches else random.choice(favourites))
                num_added += num_requests(operations[-1])
            else:
                operations.append(self._between(scope, num_added, len(operations), disturbance))
        return tuple(operations)

    def _between(self, scope: Scope, num_added: int, num_operations: int, disturbance: float) -> Operation:
        random = self._random
        if random.random() >= disturbance:
            return TakeStep()
        if random.random() < 0.5:
            return Abort(random.randrange(num_added or 1))
        others: list[Operation] = [Reset(), *map(BreakOff, scope.broken), *scope.ends]
        others += [Fork(), Rewind(random.randrange(num_operations + 1))] if scope.repeats else []
        return random.choice(others)

    def _varied(self, scope: Scope, operations: list[Operation]) -> Workload:
        random = self._random
        for _ in range(random.randint(1, 3)):
            place = random.randrange(len(operations) + 1)
            change = random.random()
            if change < 0.3 and operations:
                del operations[place - 1]
            elif change < 0.6:
                operations.insert(place, random.choice(scope.adds))
            else:
                num_added = sum(map(num_requests, operations[:place]))
                operations.insert(place, self._between(scope, num_added, place, 0.5))
        return tuple(operations)


class EventPairs:
    """The pairs of consecutive kinds of events in a run."""

    def __init__(self) -> None:
        self.seen: set[tuple[object, object]] = set()
        self.num_operations = 0
        self._before: object = None

    def note(self, event: Event) -> None:
        if isinstance(event, DecisionDiffered):  # it does not describe the state
            return
        now = (type(event), getattr(event, "reason", None))
        self.seen.add((self._before, now))
        self._before = now
        self.num_operations += isinstance(event, (RequestAdded, StepStarted))
