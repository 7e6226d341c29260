"""The point of no return: the last moment of a workload from which a run can still end well."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from labengine.finder.judgement import Case, Judgement
from labengine.finder.liveness import drain
from labengine.finder.operations import Abort, Operation, Reset, TakeStep, Workload, is_possible

MAX_MORE = 5
"""Most operations in a continuation before the steps to the end."""
MAX_TRIED = 2000
"""Most continuations tried from one moment."""


@dataclass(frozen=True)
class PointOfNoReturn:
    """The first num_operations of a workload, and a continuation from there that ends well.

    After the workload's next operation every tried continuation goes wrong; num_operations is the workload's length if
    a continuation from its end still ends well.
    """

    num_operations: int
    continuation: Workload

    def __str__(self) -> str:
        if not self.num_operations:
            return "Whatever follows the first operation, the run goes wrong."
        more = "; ".join(map(str, self.continuation))
        rescue = f"with {more} the run ends well" if more else "with only steps the run ends well"
        return f"The point of no return is after operation {self.num_operations}: from there, {rescue}."


def point_of_no_return(case: Case, judgement: Judgement) -> PointOfNoReturn:
    """Return the last moment of a workload that goes wrong from which some continuation ends well.

    A continuation has up to five steps, aborts and cache resets, and then steps to the end; no request is added.
    """
    for length in range(len(case.workload) - 1, 0, -1):
        before = case.workload[:length]
        for more in _continuations(case, before, judgement):
            if _ends_well(case, (*before, *more), judgement):
                return PointOfNoReturn(length, more)
    return PointOfNoReturn(0, ())


def _continuations(case: Case, before: Workload, judgement: Judgement) -> Iterator[Workload]:
    """Yield continuations, the shortest first, without impossible operations."""
    shorter: list[Workload] = [()]
    num_tried = 0
    for _ in range(MAX_MORE + 1):
        longer: list[Workload] = []
        for more in shorter:
            yield more
            num_tried += 1
            if num_tried >= MAX_TRIED:
                return
            longer += [(*more, operation) for operation in _possible(case, (*before, *more), judgement)]
        shorter = longer


def _possible(case: Case, workload: Workload, judgement: Judgement) -> list[Operation]:
    sandbox = judgement.sandbox(case.scope)
    finding, _ = sandbox.run(workload)
    if finding is not None:
        return []
    engine = sandbox.engine
    every: list[Operation] = [TakeStep(), *map(Abort, range(engine.num_added)), Reset()]
    return [operation for operation in every if is_possible(operation, engine)]


def _ends_well(case: Case, workload: Workload, judgement: Judgement) -> bool:
    sandbox = judgement.sandbox(case.scope)
    finding, _ = sandbox.run(workload)
    if finding is None:
        finding, _ = drain(sandbox)
    return finding is None
