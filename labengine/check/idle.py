"""The rule `idle`: a running request that fits into a step gets a token."""

from __future__ import annotations

from collections.abc import Iterator

from labengine import events as ev
from labengine.check.blame import Blamed
from labengine.check.step_rules import JudgedStep
from labengine.check.stream import Stream
from labengine.core.parts import Parts
from labengine.core.request import Request, RequestStatus
from labengine.core.scheduler import Scheduler
from labengine.core.seams import decider_among
from labengine.record.violation import Violation
from labengine.record.wording import counted

SELECTING = tuple(
    f"Scheduler.{name}"
    for name in (
        *("_schedule_running", "_schedule_decode", "num_plannable", "schedule"),
        *("allocate_or_preempt", "choose_victim", "preempt"),
    )
)
"""Methods that select the running requests of a step."""


def serves_who_fits(step: JudgedStep) -> Iterator[Blamed]:
    """`idle`: yield running requests that get no token although budget and free blocks have room for one."""
    plan, stream, scheduler = step.plan, step.stream, step.scheduler
    passed_over = stream.running.difference([part.request_id for part in plan.scheduled])
    if not passed_over:
        return
    num_left = scheduler.budget_left(plan.scheduled)
    if num_left <= 0 or not scheduler.serves_all(plan.scheduled, stream.running) or _has_preempted_itself(stream):
        return
    num_free = scheduler.manager.pool.num_free
    for request_id in sorted(passed_over):
        request = scheduler.requests.get(request_id)
        if request is None or request.status is not RequestStatus.RUNNING:
            continue
        needed = _blocks_of_next_token(request, scheduler)
        if _waits_for_a_boundary(request, num_left, scheduler) or scheduler.waits_for_modules(request, num_left):
            continue
        if request.num_computed_tokens < request.num_tokens and needed <= num_free:
            yield _idle(request, num_left, needed, num_free, _overtaken_at(request, stream, scheduler), step.parts)


def _has_preempted_itself(stream: Stream) -> bool:
    """Return True if the schedule ends with a preemption: the request that lacked a block was the victim.

    Neither vLLM nor labengine schedules a request after that.
    """
    kinds = (ev.RequestScheduled, ev.RequestPreempted)
    newest = next((event for event in reversed(stream.under_way()) if isinstance(event, kinds)), None)
    return isinstance(newest, ev.RequestPreempted)


def _waits_for_a_boundary(request: Request, num_left: int, scheduler: Scheduler) -> bool:
    """Return True while a prefill with states cannot reach a position at which its state is cached."""
    start = request.num_computed_tokens
    if start >= max(request.num_prompt_tokens, request.num_tokens - 1):
        return False
    sizes = (group.block_size for group in scheduler.manager.groups if group.keeps_states)
    return any(start - start % size + size > start + num_left for size in sizes)


def _blocks_of_next_token(request: Request, scheduler: Scheduler) -> int:
    """Return how many blocks the request's tables lack for one more token."""
    end = scheduler.manager.num_slots(request, request.num_computed_tokens + 1)
    groups = zip(scheduler.manager.groups, request.block_tables, strict=True)
    return sum(max(0, -(-end // group.block_size) - len(table)) for group, table in groups)


def _overtaken_at(request: Request, stream: Stream, scheduler: Scheduler) -> int:
    """Return the first event that schedules a request after this one; else the newest that schedules any."""
    running = [one.request_id for one in scheduler.running]
    place = running.index(request.request_id) if request.request_id in running else len(running)
    before = stream.running.difference(running[place:])
    number = stream.last_number
    for one in stream.numbered_under_way():
        if isinstance(one.event, ev.RequestScheduled):
            number = one.number
            if one.event.request_id not in before:
                break
    return number


def _idle(request: Request, num_left: int, needed: int, num_free: int, number: int, parts: Parts) -> Blamed:
    are_left = "token of the step's budget is left" if num_left == 1 else "tokens of the step's budget are left"
    fits = f"needs {counted(needed, 'block')} of {num_free} free" if needed else "fits into its blocks"
    text = (
        f"request {request.request_id} is running but gets no token: {num_left} {are_left}, and its next token {fits} "
        f"({decider_among(parts, SELECTING)})"
    )
    return Blamed(Violation("idle", text, (request.request_id,)), number)
