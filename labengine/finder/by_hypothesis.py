"""Random workloads drawn by Hypothesis, which also shrinks what goes wrong. An extra: hypothesis."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from typing import Any

from labengine.engine.sources.cache import cache_root
from labengine.extras import require_extra
from labengine.finder.judgement import Case, Judgement
from labengine.finder.limits import SHRINKING_S
from labengine.finder.operations import Abort, BreakOff, Fork, Operation, Reset, Rewind, TakeStep
from labengine.finder.sandbox import Finding
from labengine.finder.scopes import Scope

MAX_OPERATIONS = 16
BATCH = 20
"""Workloads that Hypothesis draws at a time: between two batches a search can be ended."""


class HypothesisSearch:
    """Workloads drawn in several scopes, by a seed. Made like a RandomSearch, and read in the same way."""

    def __init__(self, scopes: Sequence[Scope], judgement: Judgement, seed: int) -> None:
        """Raises ConfigError without Hypothesis."""
        require_extra("hypothesis", "strategy='hypothesis'")
        self.num_workloads = 0
        self.num_operations = 0
        self.operations: set[str] = set()
        self._judgement = judgement
        self._seed = seed
        self._cases = _cases(scopes)
        self._found: tuple[Finding, Case] | None = None
        self._shrinks_until = 0.0

    def findings(self) -> Iterator[tuple[Finding, Case] | None]:
        """Yield a shrunk finding with its case, or None, after each batch; endless."""
        while True:
            self._found = None
            draw = _drawing(self._cases, self._seed, self._judge)
            self._seed += 1
            with suppress(_GoesWrongError, _StopError), _home():
                draw()
            if self._found is not None:  # of each kind only the first finding counts
                kinds = tuple(kind for kind in self._judgement.kinds if kind != self._found[0].kind)
                self._judgement = replace(self._judgement, kinds=kinds)
            yield self._found

    def _judge(self, case: Case) -> None:
        """Judge a workload. Raises _GoesWrongError for one that goes wrong, _StopError when shrinking takes long."""
        if self._found is not None and time.monotonic() > self._shrinks_until:
            raise _StopError
        self.num_workloads += 1
        self.num_operations += len(case.workload)
        self.operations.update(operation.what for operation in case.workload)
        found = self._judgement.of(case)
        if found is None:
            return
        if self._found is None:
            self._shrinks_until = time.monotonic() + SHRINKING_S
        self._found = found
        raise _GoesWrongError


class _GoesWrongError(Exception):
    """A workload goes wrong: Hypothesis looks for a simpler one."""


class _StopError(BaseException):
    """Ends Hypothesis at once, which an Exception would not."""


@contextmanager
def _home() -> Iterator[None]:
    """Have Hypothesis keep what it reads from sources in the cache folder, and not in the present directory."""
    configuration: Any = import_module("hypothesis.configuration")
    before = vars(configuration).get("__hypothesis_home_directory")
    configuration.set_hypothesis_home_dir(cache_root() / "hypothesis")
    try:
        yield
    finally:
        configuration.set_hypothesis_home_dir(before)


def _drawing(cases: Any, seed: int, judge: Callable[[Case], None]) -> Callable[[], None]:
    """Return a function that draws a batch of workloads."""
    hypothesis: Any = import_module("hypothesis")  # its decorators have no types
    own = hypothesis.settings(
        max_examples=BATCH,
        database=None,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=list(hypothesis.HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
    )

    def one(case: Case) -> None:
        judge(case)

    draw: Callable[[], None] = hypothesis.seed(seed)(own(hypothesis.given(cases)(one)))
    return draw


def _cases(scopes: Sequence[Scope]) -> Any:
    """Return a strategy: a scope, and a workload in it."""
    from hypothesis import strategies

    def workloads(scope: Scope) -> Any:
        adds = strategies.sampled_from(scope.adds)
        step, other = strategies.just(TakeStep()), strategies.sampled_from(_others(scope))
        operations = strategies.one_of(step, adds, step, adds, other)
        listed = strategies.lists(operations, min_size=1, max_size=MAX_OPERATIONS)
        return listed.map(lambda workload: Case(scope, tuple(workload)))

    return strategies.sampled_from(scopes).flatmap(workloads)


def _others(scope: Scope) -> list[Operation]:
    others: list[Operation] = [*map(Abort, range(scope.max_requests)), Reset(), *map(BreakOff, scope.broken)]
    others += scope.ends
    return [*others, Fork(), *map(Rewind, range(4))] if scope.repeats else others
