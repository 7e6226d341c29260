"""The rule `sampled`: each request gets the tokens that the model sampled for it, and no other's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from labengine import events as ev
from labengine.check.blame import Blamed
from labengine.check.stream import Stream
from labengine.core.parts import Parts
from labengine.core.seams import decider_among
from labengine.core.step_plan import StepPlan
from labengine.record.violation import Violation

APPENDING = ("Scheduler.judge_drafts", "Scheduler.append_token", "Scheduler.update")
"""Methods that hand sampled tokens to requests."""


def judge_sampled(plan: StepPlan, token_ids: Sequence[int], stream: Stream, parts: Parts) -> Iterator[Blamed]:
    """Yield requests that got other tokens than the first ones of their rows, or none.

    token_ids: what the model sampled, one token per row of plan.rows: of a request with drafts one for each, of which
    it may take fewer. A beam's token is its search's choice. stream: the events of the whole step.
    """
    sampled: dict[int, list[int]] = {}
    for row, token_id in zip(plan.rows, token_ids, strict=False):
        if row.sampling.beams == 1:
            sampled.setdefault(row.request_id, []).append(token_id)
    appended: dict[int, list[int]] = {request_id: [] for request_id in sampled}
    for event in stream.under_way():
        if type(event) is ev.TokenSampled and event.request_id in appended:
            appended[event.request_id].append(event.token_id)
    for request_id, tokens in appended.items():
        if tokens and tokens == sampled[request_id][: len(tokens)]:
            continue
        yield _not_its_own(request_id, sampled[request_id], tokens, stream, parts)


def _not_its_own(
    request_id: int, sampled: Sequence[int], tokens: Sequence[int], stream: Stream, parts: Parts
) -> Blamed:
    of_its_own = ", ".join(map(str, sampled[: max(1, len(tokens))]))
    got = ", ".join(map(str, tokens)) or "none"
    by = decider_among(parts, APPENDING)
    text = f"the model sampled {of_its_own} for request {request_id}, and it got {got} ({by})"
    number = stream.newest(lambda event: getattr(event, "request_id", None) == request_id)
    return Blamed(Violation("sampled", text, (request_id,)), stream.last_number if number is None else number)
