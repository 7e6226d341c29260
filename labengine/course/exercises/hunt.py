"""Exercises of the notebook "The hunt"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labengine.core.nano_vllm.scheduler import PrefillFirstScheduler
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.course.branch import FAST_PREFILL, TEXTS, BranchManager, BranchScheduler, send_day
from labengine.course.exercises.policy_workloads import steps_waited
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.predict_exercise import RevealedStep
from labengine.course.trial import plays
from labengine.course.words import course_exercise
from labengine.events import BlockAllocated, BlockCached, BlockTouched, PrefixHit, SlotsWritten
from labengine.lab import Lab

POOL: dict[str, Any] = {"num_blocks": 16, "block_size": 4, "max_num_batched_tokens": 8}
"""A step computes at most 8 tokens: a prompt of 20 takes three steps."""


_one_and_a_follower = plays((f"{TEXTS[0]}, or twice", 2), 1, (" ".join(TEXTS[0].split()[:17]), 2))


def _one_follower_and_steps(lab: Lab) -> None:
    _one_and_a_follower(lab)
    lab.step(3)


def _num_found(step: RevealedStep) -> int:
    return step.first(PrefixHit).num_tokens


course_exercise(
    "hunt/num-found",
    play=_one_and_a_follower,
    truth=_num_found,
    about="number",
    mistakes=[lambda step: step.before.requests[0].num_computed_tokens, lambda step: _num_found(step) + 1],
    parts=FAST_PREFILL,
    **POOL,
)


def _early_promise(lab: Lab) -> int:
    """Return the number of the first BlockCached for a block whose slots are not all written."""
    assert lab.timeline is not None
    written: dict[int, int] = {}
    for number, event in enumerate(lab.timeline.events(), lab.timeline.num_dropped):
        if isinstance(event, SlotsWritten):
            written[event.request_id] = event.start + sum(length for _, _, length in event.runs)
        elif isinstance(event, BlockCached) and (event.index + 1) * 4 > written.get(event.request_id, 0):
            return number
    raise AssertionError("every block was written before it was registered")


course_exercise(
    "hunt/first-wrong",
    broken=FAST_PREFILL,
    play=_one_follower_and_steps,
    first=_early_promise,
    mistakes=[nth_event(BlockTouched, 2), nth_event(BlockCached), nth_event(BlockAllocated, 2)],
    **POOL,
)


def num_registrable_tokens(self: Any, request: Request, num_tokens: int, moment: str) -> int:
    """Return the computed tokens after compute: a map entry promises that they are written."""
    return num_tokens if moment == "computed" else 0


course_exercise(
    "hunt/registrable",
    solution=num_registrable_tokens,
    workloads=[_one_follower_and_steps, send_day],
    num_lines=1,
    mistakes=[
        lambda self, request, num_tokens, moment: request.num_tokens if moment == "computed" else 0,
        lambda self, request, num_tokens, moment: num_tokens,
        lambda self, request, num_tokens, moment: 0,
    ],
    **{**POOL, "parts": FAST_PREFILL, "num_blocks": 64},
)


@dataclass(frozen=True)
class Needs:
    """A rule: a workload goes wrong if it has all of these operations and, if others are given, one of those."""

    operations: frozenset[str]
    one_of: frozenset[str] = frozenset()

    def __call__(self, workload: list[str]) -> bool:
        return self.operations <= set(workload) and (not self.one_of or not self.one_of.isdisjoint(workload))

    def __repr__(self) -> str:
        either = [" or ".join(sorted(self.one_of))] if self.one_of else []
        return f"Needs({', '.join([*sorted(self.operations), *either])})"


def shorten(workload: list[str], goes_wrong: Callable[[list[str]], bool]) -> list[str]:
    """Leave out one operation at a time, as long as the workload still goes wrong."""
    needed = list(workload)
    for operation in workload:
        shorter = [one for one in needed if one != operation]
        if goes_wrong(shorter):
            needed = shorter
    return needed


def _only_from_the_front(workload: list[str], goes_wrong: Callable[[list[str]], bool]) -> list[str]:
    while workload and goes_wrong(workload[1:]):
        workload = workload[1:]
    return workload


def _only_from_the_end(workload: list[str], goes_wrong: Callable[[list[str]], bool]) -> list[str]:
    while workload and goes_wrong(workload[:-1]):
        workload = workload[:-1]
    return workload


def _each_against_all(workload: list[str], goes_wrong: Callable[[list[str]], bool]) -> list[str]:
    return [operation for operation in workload if not goes_wrong([one for one in workload if one != operation])]


def needs(*operations: str) -> Needs:
    return Needs(frozenset(operations))


course_exercise(
    "hunt/shorten",
    solution=shorten,
    cases=[
        (["add A", "step", "add B"], needs("add A", "step")),
        (["add A", "add B", "step"], needs("add B", "step")),
        (["add A", "reset", "add B"], needs("add A", "add B")),
        (["add A", "add B", "add C", "step 1", "step 2", "add D", "step 3"], needs("add B", "step 2")),
        (["add A", "step 1", "abort A", "reset", "add B", "step 2"], needs("add A", "add B", "abort A", "step 2")),
        (["step"], needs("step")),
        (["add A", "add B", "step"], Needs(frozenset({"step"}), frozenset({"add A", "add B"}))),
    ],
    num_lines=6,
    mistakes=[
        _only_from_the_front,
        _only_from_the_end,
        lambda workload, goes_wrong: [operation for operation in workload if goes_wrong([operation])],
        _each_against_all,
        lambda workload, goes_wrong: shorten(workload[::-1], lambda shorter: goes_wrong(shorter[::-1]))[::-1],
    ],
)


class Mended(BranchManager):
    """The branch's manager, fixed."""

    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: str) -> int:
        """Return the computed tokens after compute."""
        return num_tokens if moment == "computed" else 0


class CachedFirst(PrefillFirstScheduler):
    """Requests that have begun come first, then the one with the fewest tokens to compute."""

    def next_waiting(self) -> Request:
        """Return a request that has blocks, or else the one with the least left to compute after its cache hit."""

        def cost(request: Request) -> tuple[bool, int]:
            num_found = 0 if request.has_blocks else self.manager.find_prefix(request).num_tokens
            return not request.has_blocks, request.num_tokens - num_found

        return min(self.waiting, key=cost)


course_exercise(
    "hunt/patience",
    solution=CachedFirst,
    workloads=[send_day],
    score=steps_waited,
    goal=101,
    num_lines=4,
    mistakes=[
        BranchScheduler,
        lambda self: self.waiting[0],
        lambda self: min(self.waiting, key=lambda request: request.num_tokens - request.num_computed_tokens),
    ],
    **{**POOL, "parts": Parts(kv_cache_manager=Mended).overriding(FAST_PREFILL), "num_blocks": 64},
)
