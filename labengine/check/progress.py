"""Whether a step brings each of its requests on: a request that gets blocks, and nothing to compute, stays for ever."""

from __future__ import annotations

from collections.abc import Iterator

from labengine import events as ev
from labengine.check.blame import Blamed
from labengine.check.stream import Stream
from labengine.core.step_plan import StepPlan
from labengine.violation import Violation


def judge_progress(plan: StepPlan, stream: Stream) -> list[Blamed]:
    """Requests that the step schedules, or admits, and of which it computes no token. `stream`: up to its schedule."""
    return [*_empty_shares(plan, stream), *_admitted_in_vain(plan, stream)]


def _empty_shares(plan: StepPlan, stream: Stream) -> Iterator[Blamed]:
    for part in plan.scheduled:
        if part.num_tokens < 1:
            text = f"request {part.request_id} is scheduled, and none of its tokens is computed: its hit may cover all"
            yield _blamed(text, part.request_id, stream)


def _admitted_in_vain(plan: StepPlan, stream: Stream) -> Iterator[Blamed]:
    """Unless the request waits for the external tier, or has given its blocks back in the same step."""
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
