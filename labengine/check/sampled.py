"""The rule `sampled`: each request gets the tokens that the model sampled for it, and no other's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from labengine.check.blame import Blamed
from labengine.check.stream import Stream
from labengine.core.part_methods import definers, is_custom
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.scheduler import Scheduler
from labengine.core.seams import decider_among
from labengine.core.step_plan import StepPlan
from labengine.record.violation import Violation

APPENDING = ("Drafts.judge", "Scheduler.append_token", "Scheduler.update")
"""Methods that hand sampled tokens to requests."""


def judge_sampled(
    plan: StepPlan, token_ids: Sequence[int], scheduler: Scheduler, stream: Stream, parts: Parts
) -> Iterator[Blamed]:
    """Yield requests that hold another token than was sampled for a position, or none at their first one.

    token_ids: what the model sampled, one token per row of plan.rows. A request with drafts has a row for each, and
    may take fewer. A beam's token is its search's choice. A request whose tokens end it needs no more: a scheduler that
    works ahead computes it once more, and drops what is sampled then. stream: the events of the whole step.
    """
    served: set[int] = set()
    for row, token_id in zip(plan.rows, token_ids, strict=False):
        request_id, position = row.request_id, row.end
        request = scheduler.requests.get(request_id)
        if request is None or row.sampling.beams > 1:
            continue
        has_token = position < len(request.token_ids)
        is_served = has_token or request_id in served or _has_ended(request, scheduler)
        if (has_token and request.token_ids[position] != token_id) or not is_served:
            got = f"holds {request.token_ids[position]} there" if has_token else "has no token there"
            text = f"the model sampled {token_id} for position {position} of request {request_id}, which {got}"
            number = stream.newest(lambda event, of=request_id: getattr(event, "request_id", None) == of)  # type: ignore[misc]
            violation = Violation("sampled", f"{text} ({decider_among(parts, APPENDING)})", (request_id,))
            yield Blamed(violation, stream.last_number if number is None else number)
        served.add(request_id)


def _has_ended(request: Request, scheduler: Scheduler) -> bool:
    """Return True if the newest token ends the request, says labengine's own method; an override may say so later."""
    if not request.num_generated_tokens:
        return False
    own = next(cls for cls in definers(type(scheduler), "finish_reason") if not is_custom(cls))
    return vars(own)["finish_reason"](scheduler, request) is not None
