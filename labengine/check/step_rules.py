"""Rules on what a step owes its requests: blocks for the scheduled tokens, progress, and the sampled tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from labengine import events as ev
from labengine.check.blame import Blamed
from labengine.check.stream import Stream
from labengine.core.block_pool import FreedTwiceError
from labengine.core.kv_cache_group import NotGrantedError
from labengine.core.part_methods import definers, is_custom
from labengine.core.parts import Parts
from labengine.core.request import Request, RequestStatus
from labengine.core.scheduler import Scheduler
from labengine.core.seams import decider_among
from labengine.core.step_plan import StepPlan
from labengine.record.fold import surviving
from labengine.record.timeline import Timeline
from labengine.record.violation import Violation
from labengine.record.wording import group_suffix

ADMITTING = (
    *("KVCacheGroup.num_blocks_to_admit", "KVCacheGroup.max_blocks_held", "KVCacheManager.has_room"),
    *("KVCacheManager.can_admit", "KVCacheManager.admit", "Scheduler.admit", "BlockPool.num_free"),
)
"""Methods that count or grant the blocks of a request that is admitted."""

ALLOCATING = (
    *("KVCacheManager.allocate", "KVCacheGroup.num_missing_blocks", "KVCacheGroup.extend"),
    "Scheduler.allocate_or_preempt",
)
"""Methods that count or grant the blocks of a running request's next tokens."""

BOOKING = ("Scheduler.book_computed", "Drafts.judge", "Scheduler.update")
"""Methods that count what a step has computed."""

APPENDING = ("Drafts.judge", "Scheduler.append_token", "Scheduler.update")
"""Methods that hand sampled tokens to requests."""

_ENDS = {"finished": "has finished", "aborted": "was aborted", "preempted": "was preempted"}


class JudgedStep(NamedTuple):
    """A step to be judged. stream: its events so far. sampled: one token per row of the plan.

    error: the exception that made the step fail, if any.
    """

    plan: StepPlan
    stream: Stream
    scheduler: Scheduler
    parts: Parts
    sampled: Sequence[int] = ()
    error: BaseException | None = None

    def blamed(self, rule: str, text: str, request_id: int, *kinds: type[ev.Event], by: Sequence[str] = ()) -> Blamed:
        """Return the violation of a rule by a request, from its newest event (of these kinds, if given) on.

        by: methods of which the message names the deciding one.
        """

        def is_about(event: ev.Event) -> bool:
            return getattr(event, "request_id", None) == request_id and isinstance(event, kinds or object)

        number = self.stream.newest(is_about)
        decided = f" ({decider_among(self.parts, by)})" if by else ""
        first = self.stream.last_number if number is None else number
        return Blamed(Violation(rule, f"{text}{decided}", (request_id,)), first)


Rule = Callable[[JudgedStep], Iterator[Blamed]]


def is_granted(step: JudgedStep) -> Iterator[Blamed]:
    """`granted`: yield scheduled requests whose block tables end before the tokens that the step computes."""
    sizes = [group.block_size for group in step.scheduler.manager.groups]
    for part in step.plan.scheduled:
        end = part.end
        for group, table in enumerate(part.block_tables):
            if len(table) * sizes[group] < end:
                text = (
                    f"request {part.request_id} is scheduled up to token {end}, but the blocks of its "
                    f"table{group_suffix(group)} hold only {len(table) * sizes[group]}"
                )
                yield _not_granted(step, text, part.request_id, ev.RequestScheduled)


def failed_for_want_of_blocks(step: JudgedStep) -> Iterator[Blamed]:
    """`granted`: yield the request for which the schedule raised because promised blocks were not free."""
    if isinstance(step.error, NotGrantedError):
        yield _not_granted(step, str(step.error), step.error.request_id, ev.RequestScheduled, ev.PrefixHit)


def _not_granted(step: JudgedStep, text: str, request_id: int, *kinds: type[ev.Event]) -> Blamed:
    is_running = request_id in step.stream.running
    by = (*ALLOCATING, *ADMITTING) if is_running else (*ADMITTING, *ALLOCATING)
    return step.blamed("granted", text, request_id, *kinds, by=by)


def computes_something(step: JudgedStep) -> Iterator[Blamed]:
    """`progress`: yield scheduled requests without a computed token."""
    for part in step.plan.scheduled:
        if not part.token_ids:
            text = f"request {part.request_id} is scheduled with no token to compute: its hit may cover all of them"
            yield step.blamed("progress", text, part.request_id)


def schedules_the_admitted(step: JudgedStep) -> Iterator[Blamed]:
    """`progress`: yield admitted requests that are not scheduled.

    Requests that wait for a load, or were preempted at once, are exempt.
    """
    events = step.stream.under_way()
    if not any(type(event) is ev.PrefixHit for event in events):
        return
    admitted: dict[int, None] = {}
    for event in events:
        if isinstance(event, ev.PrefixHit):
            admitted[event.request_id] = None
        elif isinstance(event, (ev.RequestPreempted, ev.RequestFinished)) or (
            isinstance(event, ev.ExternalHit) and event.is_loading
        ):
            admitted.pop(event.request_id, None)
    for request_id in admitted.keys() - {part.request_id for part in step.plan.scheduled}:
        text = f"request {request_id} was admitted, but the step schedules nothing for it"
        yield step.blamed("progress", text, request_id)


def counts_what_it_computed(step: JudgedStep) -> Iterator[Blamed]:
    """`progress`: yield requests that count fewer tokens than the step computed, or more, or rejected guesses.

    Uncounted tokens are computed again, perhaps for ever; wrongly counted ones have no KV. The last token of a beam has
    KV until its search chooses the next one. A step that is planned before the last one is booked counts later.
    """
    if step.scheduler.plans_ahead:
        return
    requests = step.scheduler.requests
    for part in step.plan.scheduled:
        request = requests.get(part.request_id)
        if request is None or not request.has_blocks or request.status is RequestStatus.FINISHED:
            continue
        if not part.num_known <= request.num_computed_tokens <= part.end:
            what = f"is computed up to token {part.num_known}"
        elif request.num_computed_tokens >= request.num_tokens and request.sampling.beams == 1:
            what = f"has {request.num_tokens} tokens, the last one without KV"
        else:
            continue
        text = f"request {part.request_id} {what}, but counts {request.num_computed_tokens} as computed"
        yield step.blamed("progress", text, part.request_id, by=BOOKING)


def hands_out_what_was_sampled(step: JudgedStep) -> Iterator[Blamed]:
    """`sampled`: yield requests that hold a different token from the sampled one, or none at their first position.

    A request with drafts has one row for each, and may take fewer. A beam's search chooses its token. A request whose
    newest token ends it needs no more: a scheduler that works ahead computes it once more and drops that sample.
    """
    served: set[int] = set()
    for row, token_id in zip(step.plan.rows, step.sampled, strict=False):
        request_id, position = row.request_id, row.end
        request = step.scheduler.requests.get(request_id)
        if request is None or row.sampling.beams > 1:
            continue
        has_token = position < len(request.token_ids)
        is_served = has_token or request_id in served or _has_ended(request, step.scheduler)
        if (has_token and request.token_ids[position] != token_id) or not is_served:
            got = f"holds {request.token_ids[position]} there" if has_token else "has no token there"
            text = f"the model sampled {token_id} for position {position} of request {request_id}, which {got}"
            yield step.blamed("sampled", text, request_id, by=APPENDING)
        served.add(request_id)


def _has_ended(request: Request, scheduler: Scheduler) -> bool:
    """Return True if, by labengine's own method, the newest token ends the request; an override may end it later."""
    if not request.num_generated_tokens:
        return False
    own = next(cls for cls in definers(type(scheduler), "finish_reason") if not is_custom(cls))
    return vars(own)["finish_reason"](scheduler, request) is not None


def freed_again(
    error: BaseException | None, stream: Stream, timeline: Timeline | None, overrides: str
) -> Iterator[Blamed]:
    """`held`: yield the request that had given back a block, if a step failed because the block was freed again.

    stream: the events up to StepFailed, of this step and the one before; the timeline has all. overrides: as text.
    """
    if isinstance(error, FreedTwiceError):
        events = [one.event for one in stream.newest_events()] if timeline is None else timeline.events()
        freed = (events[i] for i in reversed(surviving(events)))
        for event in freed:
            if isinstance(event, ev.BlockFreed) and event.block_id == error.block_id:
                violation = _freed_before(event, error.request_id)
                yield Blamed(replace(violation, message=f"{violation.message}{overrides}"), stream.last_number)
                return


def _freed_before(event: ev.BlockFreed, request_id: int | None) -> Violation:
    """event: the first release of the block. request_id: the request for which it is freed again, if known."""
    owner, block_id = event.request_id, event.block_id
    if request_id not in (None, owner):
        text = f"block {block_id} of request {request_id} is free: request {owner} gave it back ({event.reason})"
        return Violation("held", text, (request_id, owner), (block_id,))
    if event.reason in _ENDS:
        text = f"request {owner} {_ENDS[event.reason]}, and its block {block_id} is freed again"
    else:
        text = f"block {block_id}, which request {owner} gave back ({event.reason}), is freed again"
    return Violation("held", text, (owner,), (block_id,))
