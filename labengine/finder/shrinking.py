"""Shrinking: reduce a workload that goes wrong until nothing can be left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from time import monotonic

from labengine.finder.judgement import Case
from labengine.finder.limits import ENDLESS_TRIES, SHRINKING_TRIES
from labengine.finder.operations import Abort, Add, Branch, BreakOffAt, Operation, TakeStep, Workload, num_requests
from labengine.finder.sandbox import Finding

Judged = Callable[[Case], tuple[Finding, Case] | None]


class Tries:
    """The tries to shrink one finding, which end at a number and at a deadline (monotonic)."""

    def __init__(self, deadline: float) -> None:
        self.num_made, self._deadline = 0, deadline

    @property
    def are_left(self) -> bool:
        """True if another try may be made."""
        return self.num_made < SHRINKING_TRIES and monotonic() < self._deadline

    def note(self, found: tuple[Finding, Case] | None) -> None:
        """Count a workload, by what it found."""
        self.num_made += ENDLESS_TRIES if found is not None and found[0].rule == "endless" else 1


def shrunk(case: Case, finding: Finding, judged: Judged, tries: Tries) -> tuple[Case, Finding]:
    """Return the smallest case found with the same error, and its finding.

    judged: returns the finding with this error and the case up to it; None without one. Smaller means fewer operations,
    then fewer tokens, then fewer blocks. Every single change is tried until none helps.
    """
    while True:
        for smaller in _smaller(case):
            if not tries.are_left:
                return case, finding
            found = judged(smaller)
            tries.note(found)
            if found is not None and size(found[1]) < size(case):
                finding, case = found
                break
        else:
            return case, finding


def size(case: Case) -> tuple[int, int, int]:
    """Return a case's size: operations, tokens (and events at which steps end), blocks (and a tier)."""
    adds = [operation for operation in case.workload if isinstance(operation, Add)]
    tokens = sum(len(add.token_ids) + add.max_tokens + (add.salt is not None) + len(add.keys) for add in adds)
    tokens += sum((add.priority != 0) + add.num_requests - 1 + len(add.images) for add in adds)
    tokens += sum(one.number for one in case.workload if isinstance(one, BreakOffAt))
    return len(case.workload), tokens, case.scope.config.num_blocks + (case.scope.tier is not None)


def _smaller(case: Case) -> Iterator[Case]:
    scope, workload = case.scope, case.workload
    for length in (8, 4, 2, 1):
        for start in range(len(workload) - length, -1, -1):
            yield Case(scope, shortened(workload, start, start + length))
    for first, second in combinations(range(len(workload)), 2):
        if second > first + 1:
            yield Case(scope, shortened(shortened(workload, second, second + 1), first, first + 1))
    for one in (_without_keys, _without_salt):
        yield Case(scope, tuple(map(one, workload)))
    for place, operation in enumerate(workload):
        if isinstance(operation, Add):
            for smaller in _smaller_adds(operation, scope.config.scheduler_block_size):
                yield Case(
                    scope, tuple(smaller if one == operation else one for one in workload)
                )  # equal ones stay equal
                yield Case(scope, (*workload[:place], smaller, *workload[place + 1 :]))
        for other in _simpler(operation):
            yield Case(scope, (*workload[:place], other, *workload[place + 1 :]))
    if scope.tier is not None:
        yield Case(replace(scope, tier=None), workload)
    config = scope.config
    for num_blocks in range(2, config.num_blocks):
        yield Case(replace(scope, config=replace(config, num_blocks=num_blocks)), workload)


def _without_keys(operation: Operation) -> Operation:
    """Return a request without salt and keys, left out of all requests together to keep equal ones equal."""
    return replace(operation, salt=None, keys=(), images=()) if isinstance(operation, Add) else operation


def _without_salt(operation: Operation) -> Operation:
    return replace(operation, salt=None) if isinstance(operation, Add) else operation


def _simpler(operation: Operation) -> Iterator[Operation]:
    """Yield simpler operations to replace a step that ends at an event."""
    if isinstance(operation, BreakOffAt):
        yield TakeStep()
        if operation.number > 1:
            yield replace(operation, number=1)


def shortened(workload: Workload, start: int, end: int) -> Workload:
    """Return the workload without [start, end), with new request ids in later aborts and branches."""
    numbers: dict[int, int] = {}
    kept: list[Operation] = []
    num_added = 0
    for place, operation in enumerate(workload):
        is_kept = not start <= place < end
        if isinstance(operation, (Abort, Branch)):
            is_kept = is_kept and operation.request_id in numbers
            if is_kept:
                operation = replace(operation, request_id=numbers[operation.request_id])
        for _ in range(num_requests(operation)):
            if is_kept:
                numbers[num_added] = len(numbers)
            num_added += 1
        if is_kept:
            kept.append(operation)
    return tuple(kept)


def _smaller_adds(add: Add, size: int) -> Iterator[Add]:
    length = len(add.token_ids)
    for shorter in sorted({1, 2, length // 2, length - size, length - 1}):
        if 0 < shorter < length:
            images = tuple(image for image in add.images if image.start + image.length <= shorter)
            yield replace(add, token_ids=add.token_ids[:shorter], images=images)
    for fewer in sorted({1, 2, add.max_tokens // 2, add.max_tokens - 1}):
        if 0 < fewer < add.max_tokens:
            yield replace(add, max_tokens=fewer)
    if add.salt is not None:
        yield replace(add, salt=None)
    if add.keys:
        yield replace(add, keys=())
    if add.priority:
        yield replace(add, priority=0)
    for fewer in range(1, add.num_requests):
        yield replace(add, n=min(add.n, fewer), beams=min(add.beams, fewer))
    for image in add.images:
        yield replace(add, images=tuple(one for one in add.images if one is not image))
