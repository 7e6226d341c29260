"""Progress: a step must compute tokens of each request to which it gives blocks, or the request never ends."""

from __future__ import annotations

from collections.abc import Iterator

from labengine import events as ev
from labengine.check.blame import Blamed
from labengine.check.stream import Stream
from labengine.core.step_plan import StepPlan
from labengine.violation import Violation


def judge_progress(plan: StepPlan, stream: Stream) -> list[Blamed]:
    """Return requests that the step schedules or admits without computing a token of theirs.

    stream: the events up to the plan.
    """
    return [*_empty_shares(plan, stream), *_admitted_in_vain(plan, stream)]


def _empty_shares(plan: StepPlan, stream: Stream) -> Iterator[Blamed]:
    for part in plan.scheduled:
        if part.num_tokens < 1:
            text = f"request {part.request_id} is scheduled, and none of its tokens is computed: its hit may cover all"
            yield _blamed(text, part.request_id, stream)


def _admitted_in_vain(plan: StepPlan, stream: Stream) -> Iterator[Blamed]:
    """Yield admitted requests that are not scheduled, except those that wait for a load or were preempted at once."""
    admitted: dict[int, None] = {}
    for event in stream.under_way():
        if isinstance(event, ev.PrefixHit):
            admitted[event.request_id] = None
        elif isinstance(event, (ev.RequestPreempted, ev.RequestFinished)) or (
            isinstance(event, ev.ExternalHit) and event.is_loading
        ):
            admitted.pop(event.request_id, None)
    for request_id in admitted.keys() - {part.request_id for part in plan.scheduled}:
        text = f"request {request_id} was admitted, and the step schedules nothing for it"
        yield _blamed(text, request_id, stream)


def _blamed(text: str, request_id: int, stream: Stream) -> Blamed:
    number = stream.newest(lambda event: getattr(event, "request_id", None) == request_id)
    return Blamed(Violation("progress", text, (request_id,)), stream.last_number if number is None else number)
