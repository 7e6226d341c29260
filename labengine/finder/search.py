"""One searcher's work: search small scopes completely, then random workloads, and shrink each finding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic

from labengine.config import ConfigError
from labengine.finder.exhaustive import ExhaustiveSearch
from labengine.finder.judgement import KINDS, Case, Judgement
from labengine.finder.operations import Add, num_requests
from labengine.finder.random_search import RandomSearch
from labengine.finder.sandbox import Finding, raised
from labengine.finder.scopes import Scope
from labengine.finder.shrinking import Tries, shrunk, size
from labengine.isolation.endings import is_of_a_part
from labengine.session.overrides_in_use import merged


@dataclass(frozen=True)
class Task:
    """A searcher's share. small: scopes to search completely; large: scopes for random workloads from the seed."""

    judgement: Judgement
    small: Sequence[Scope]
    large: Sequence[Scope]
    seed: int
    max_workloads: int | None = None
    """Number of random workloads after which the search ends; None: only at its deadline."""
    """The class that draws the random workloads."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A scope whose states fill the memory. depth: the length up to which all workloads were tried."""

    scope: str
    num_states: int
    depth: int


@dataclass(slots=True)
class SearchCounts:
    """Counts of one searcher."""

    generated: int = 0
    distinct: int = 0
    queue_left: int = 0
    depth: int = 0
    num_workloads: int = 0
    exhausted: list[str] = field(default_factory=list)
    """Names of the completely searched scopes."""
    unfinished: list[Unfinished] = field(default_factory=list)
    operations: set[str] = field(default_factory=set)
    """Kinds of operations tried."""
    overrides: dict[str, bool | None] = field(default_factory=dict)
    """The effect of the suspects' overrides, as Watch.overrides."""
    remarks: list[str] = field(default_factory=list)
    """Sentences on the searcher's processes that did not end by themselves."""
    is_cut: bool = False
    """True if the searcher was ended early, or lost for good."""

    def cut(self, remark: str) -> None:
        """Note that the searcher has not finished its search."""
        self.remarks.append(remark)
        self.is_cut = True

    def plus(self, later: SearchCounts) -> SearchCounts:
        """Return the sum of these counts and a later search's, with the later depth and queue."""
        return SearchCounts(
            self.generated + later.generated,
            self.distinct + later.distinct,
            later.queue_left,
            later.depth,
            self.num_workloads + later.num_workloads,
            [*self.exhausted, *later.exhausted],
            [*self.unfinished, *later.unfinished],
            self.operations | later.operations,
            merged(self.overrides, later.overrides),
            [*self.remarks, *later.remarks],
            self.is_cut or later.is_cut,
        )


@dataclass(frozen=True)
class Found:
    """A finding. is_shortest: all shorter workloads of the scope were tried, and none has this error."""

    finding: Finding
    case: Case
    is_shortest: bool
    is_shrunk: bool = True
    """False for a finding reported before it is shrunk, so that a lost searcher does not lose it."""

    @property
    def rank(self) -> tuple[int, tuple[int, int, int]]:
        """Sort key: the gravest first, then the smallest."""
        return KINDS.index(self.finding.kind), size(self.case)


def search(task: Task, deadline: float) -> Iterator[Found | SearchCounts]:
    """Yield findings, and counts in between, often enough to stop at any. Ends at the deadline (monotonic).

    Reports only the first finding of each kind, unshrunk and then shrunk.
    """
    counts, newest = SearchCounts(overrides=task.judgement.overrides), _Newest()
    judgement = replace(task.judgement, notes=[*task.judgement.notes, newest.keep])
    for found in newest.guarded(_raw(replace(task, judgement=judgement), counts)):
        if isinstance(found, Found):
            yield found
        elif found is not None and found[0].kind in judgement.kinds:
            yield Found(*found, False, False)
            yield _shrunk_if_possible(found, judgement, Tries(deadline))
            judgement = replace(judgement, kinds=tuple(k for k in judgement.kinds if k != found[0].kind))
        yield counts
        if monotonic() >= deadline:
            return


class _Newest:
    """The newest case of a search, for exceptions outside of an operation, such as a SystemExit in a constructor."""

    case: Case | None = None

    def keep(self, case: Case) -> None:
        """Note a case before it is run."""
        self.case = case

    def guarded(self, findings: Iterator[tuple[Finding, Case] | None]) -> Iterator[tuple[Finding, Case] | Found | None]:
        """Yield the findings; an exception of a part in between becomes the last one."""
        while True:
            try:
                found = next(findings)
            except StopIteration:
                return
            except BaseException as error:
                if self.case is None or isinstance(error, ConfigError) or not is_of_a_part(error):
                    raise
                yield Found(raised(error), self.case, False)
                return
            yield found


def _raw(task: Task, counts: SearchCounts) -> Iterator[tuple[Finding, Case] | None]:
    left: list[Scope] = []
    for scope in possible(task.small, task.judgement):
        searched = ExhaustiveSearch(scope, task.judgement)
        generated, distinct = counts.generated, counts.distinct
        for found in searched.findings():
            progress = searched.progress
            counts.generated, counts.distinct = generated + progress.generated, distinct + progress.distinct
            counts.queue_left, counts.depth = progress.queue_left, progress.depth
            counts.operations |= progress.operations
            yield found
        if searched.progress.exhausted:
            counts.exhausted.append(scope.name)
        else:
            left.append(scope)
            counts.unfinished.append(Unfinished(scope.name, searched.progress.distinct, searched.progress.depth - 1))
    generated, distinct = counts.generated, counts.distinct
    large = possible([*left, *task.large], task.judgement)
    if not large or task.max_workloads == 0:
        return
    random = RandomSearch(large, task.judgement, task.seed)
    for found in random.findings():
        counts.generated = generated + random.num_operations
        counts.num_workloads = random.num_workloads
        counts.operations |= random.operations
        yield found
        if task.max_workloads is not None and random.num_workloads >= task.max_workloads:
            return


def possible(scopes: Sequence[Scope], judgement: Judgement) -> list[Scope]:
    """Return the scopes that these parts and the reference support. Raises ConfigError without any."""
    found, refusal = [], ""
    for scope in scopes:
        for note in judgement.notes:
            note(Case(scope, ()))
        try:
            judgement.sandbox(scope)
            judgement.sandbox(scope, judgement.suspects.reference)
            found.append(scope)
        except ConfigError as error:
            refusal = str(error)
    if scopes and not found:
        raise ConfigError(f"{judgement.suspects.parts.name} does not support any scope of the search: {refusal}")
    return found


def _shrunk_if_possible(found: tuple[Finding, Case], judgement: Judgement, tries: Tries) -> Found:
    """Return the finding shrunk, or unchanged if a smaller workload ends the search itself."""
    try:
        smaller = _shrunk(found, judgement, tries)
        is_confirmed = judgement.confirmed((smaller.finding, smaller.case)) is not None
        return smaller if is_confirmed else Found(*found, False)
    except BaseException as error:
        if not is_of_a_part(error):
            raise
        return Found(*found, False)


def _shrunk(found: tuple[Finding, Case], judgement: Judgement, tries: Tries) -> Found:
    same_kind = replace(judgement, kinds=(found[0].kind,))
    case, finding = shrunk(found[1], found[0], same_kind.of, tries)
    if finding.kind in ("worse", "differs"):
        return Found(finding, case, False)
    is_complete = False
    is_endless = finding.rule == "endless"  # each workload tried would cost its full time
    for scope in (_same_requests(case),) if is_endless else (_same_requests(case), case.scope):
        finding, case, is_complete = _shortest(scope, finding, case, judgement, tries)
        if not is_complete:
            break
    return Found(finding, case, is_complete and not is_endless)


def _same_requests(case: Case) -> Scope:
    """Return the scope with only the case's requests, which may also end earlier."""
    adds = [operation for operation in case.workload if isinstance(operation, Add)]
    shorter = [replace(add, max_tokens=number) for add in adds for number in range(1, min(add.max_tokens, 3))]
    most = sum(map(num_requests, case.workload))
    return replace(case.scope, only=tuple(dict.fromkeys([*adds, *shorter])), max_requests=most)


def _shortest(
    scope: Scope, finding: Finding, case: Case, judgement: Judgement, tries: Tries
) -> tuple[Finding, Case, bool]:
    """Return a scope's shortest workload with the same error, and True if all shorter ones were tried."""
    same_kind = replace(judgement, kinds=(finding.kind,))
    bounded = replace(scope, max_operations=len(case.workload) - 1)
    search = ExhaustiveSearch(bounded, same_kind, drains=finding.kind == "liveness")
    num_made = tries.num_made
    for found in search.findings():
        if found is not None and size(found[1]) < size(case):
            return *found, True
        tries.num_made = num_made + search.progress.generated
        if not tries.are_left:
            return finding, case, False
    return finding, case, search.progress.exhausted
