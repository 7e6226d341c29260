"""labengine.conform: hold a recorded vLLM scheduler against the edition that is named for it."""

from __future__ import annotations

from os import PathLike

from labengine.config import checked_int
from labengine.conformance.checks import violations_of
from labengine.conformance.judging import JudgedPiece, judge
from labengine.conformance.recorded import Recorded, read
from labengine.conformance.result import (
    Conformance,
    FirstDifference,
    kind_of_decision,
    request_of,
    side_of_edition,
    side_of_recording,
)
from labengine.conformance.settings import (
    CannotJudgeError,
    config_of,
    edition_for,
    longest_of,
    refuse_what_no_edition_has,
)
from labengine.core.parts import Parts
from labengine.session.settings import refuse_unknown
from labengine.stream.methods import code_of
from labengine.timeline import Timeline
from labengine.trace.file_access import MAX_BYTES, Limits
from labengine.violation import Violation

MAX_EVENTS = 10_000_000
MAX_SECONDS = 3600.0
"""Seconds that reading a stream may take by default."""


def conform(
    place: str | PathLike[str],
    *,
    max_events: int = MAX_EVENTS,
    max_bytes: int = MAX_BYTES,
    max_seconds: float = MAX_SECONDS,
    **unknown: object,
) -> Conformance:
    """Give a recorded scheduler's inputs to edition vllm or vllm-async; return the first event in which they differ.

    place: a file of the tap on vLLM, or the folder of LABENGINE_TAP=file:DIR. The inputs are arrivals, aborts, resets
    of the cache, stops, sampled tokens, and the order of scheduling and booking. Rules and oracle judge the recording
    too. max_events, max_bytes, max_seconds: what reading may take. Raises ConfigError or, for what is damaged,
    TraceError.
    """
    refuse_unknown("conform()", unknown, conform)
    recorded = read(place, Limits(place, max_bytes, max_seconds), checked_int("max_events", max_events, 1))
    return conformance_of(recorded)


def conformance_of(recorded: Recorded) -> Conformance:
    """Return whether what was read conforms."""
    parts, piece = edition_for(recorded.header), recorded.piece
    judged = JudgedPiece(0, Timeline())
    violations: tuple[Violation, ...] = ()
    try:
        refuse_what_no_edition_has(recorded.header)
        if recorded.why_not_from_start:
            raise CannotJudgeError(recorded.why_not_from_start)
        judged = judge(piece, config_of(recorded.header, piece), parts, longest_of(recorded.header))
        violations = tuple(violations_of(piece))
        is_comparable = True
    except CannotJudgeError as error:
        judged.why_unjudged, is_comparable = str(error), False
    why = judged.why_unjudged or ("" if judged.parting else recorded.why_incomplete)
    return Conformance(
        title=recorded.title,
        edition=parts.name,
        num_events=recorded.num_events,
        num_steps=piece.fold.step,
        num_judged=judged.parting.moments[0] if judged.parting else judged.end,
        difference=_difference(recorded, parts, judged),
        why_unjudged=why,
        violations=violations,
        recorded=recorded if is_comparable else None,
        expected=judged.expected if is_comparable else None,
    )


def _difference(recorded: Recorded, parts: Parts, judged: JudgedPiece) -> FirstDifference | None:
    parting = judged.parting
    if parting is None:
        return None
    recorded_kind = kind_of_decision(parting.recorded, parting.expected)
    expected_kind = kind_of_decision(parting.expected, parting.recorded)
    code = code_of(recorded.header.methods, recorded.header.engine)
    return FirstDifference(
        number=parting.moments[0],
        step=recorded.piece.timeline.state(parting.moments[0]).step,
        request=request_of((parting.recorded, parting.expected), recorded.names),
        recorded=side_of_recording(recorded.name, parting.recorded, recorded_kind, code),
        expected=side_of_edition(parts, parting.expected, expected_kind),
    )
