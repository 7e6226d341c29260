"""The rule `sampled`: each request gets the tokens that the model sampled for it, and no other's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from labengine.check.blame import Blamed
from labengine.check.stream import Stream
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.seams import decider_among
from labengine.core.step_plan import StepPlan
from labengine.record.violation import Violation

APPENDING = ("Scheduler.judge_drafts", "Scheduler.append_token", "Scheduler.update")
"""Methods that hand sampled tokens to requests."""


def judge_sampled(
    plan: StepPlan, token_ids: Sequence[int], requests: Mapping[int, Request], stream: Stream, parts: Parts
) -> Iterator[Blamed]:
    """Yield requests that hold another token than was sampled for a position, or none at their first one.

    token_ids: what the model sampled, one token per row of plan.rows. A request with drafts has a row for each, and
    may take fewer. A beam's token is its search's choice. stream: the events of the whole step.
    """
    served: set[int] = set()
    for row, token_id in zip(plan.rows, token_ids, strict=False):
        request_id, position = row.request_id, row.end
        request = requests.get(request_id)
        if request is None or row.sampling.beams > 1:
            continue
        has_token = position < len(request.token_ids)
        if (has_token and request.token_ids[position] != token_id) or not (has_token or request_id in served):
            got = f"holds {request.token_ids[position]} there" if has_token else "has no token there"
            text = f"the model sampled {token_id} for position {position} of request {request_id}, which {got}"
            number = stream.newest(lambda event, of=request_id: getattr(event, "request_id", None) == of)  # type: ignore[misc]
            violation = Violation("sampled", f"{text} ({decider_among(parts, APPENDING)})", (request_id,))
            yield Blamed(violation, stream.last_number if number is None else number)
        served.add(request_id)
