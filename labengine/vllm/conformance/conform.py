"""labengine.conform: compare a recorded vLLM scheduler with its edition."""

from __future__ import annotations

from os import PathLike

from labengine import events as ev
from labengine.config import checked_int
from labengine.core.parts import Parts
from labengine.record.files.file_access import MAX_BYTES, Limits
from labengine.record.timeline import Timeline
from labengine.record.violation import Violation
from labengine.session.settings import refuse_unknown
from labengine.vllm.conformance.breaches import entries_of
from labengine.vllm.conformance.checks import violations_of
from labengine.vllm.conformance.judging import JudgedPiece, judge
from labengine.vllm.conformance.recorded import Recorded, read
from labengine.vllm.conformance.result import (
    Conformance,
    FirstDifference,
    freed_in_use,
    name_of,
    request_of,
    side_of_edition,
    side_of_recording,
    unexpressed,
)
from labengine.vllm.conformance.saved import read_saved
from labengine.vllm.conformance.settings import (
    CannotJudgeError,
    config_of,
    edition_for,
    longest_of,
    refuse_what_no_edition_has,
)
from labengine.vllm.stream.files import is_saved

IN_NO_EDITION: tuple[type[ev.Event], ...] = (ev.BlockPinned, *(kind for kind in ev.EVENT_KINDS if not kind.decided_by))
"""Events of features that conform refuses, such as pins: without the feature, a scheduler that does so is broken."""

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

    place: a file of the tap on vLLM, the folder of LABENGINE_TAP=file:DIR, or a file of `attach --record`. The inputs
    are arrivals, aborts, resets of the cache, stops, sampled tokens, and the order of scheduling and booking. Rules and
    oracle judge the recording, too. max_events, max_bytes, max_seconds: limits of reading. Raises ConfigError or, for a
    damaged file, TraceError.
    """
    refuse_unknown("conform()", unknown, conform)
    limits, max_events = Limits(place, max_bytes, max_seconds), checked_int("max_events", max_events, 1)
    return conformance_of(read_saved(place, limits) if is_saved(place) else read(place, limits, max_events))


def conformance_of(recorded: Recorded) -> Conformance:
    """Return whether a recording conforms."""
    parts, piece = edition_for(recorded.header), recorded.piece
    judged = JudgedPiece(0, Timeline())
    violations: tuple[Violation, ...] = ()
    try:
        refuse_what_no_edition_has(recorded.header)
        if recorded.why_not_from_start:
            raise CannotJudgeError(recorded.why_not_from_start)
        config, longest = config_of(recorded.header, piece), longest_of(recorded.header)
        judged = judge(piece, config, parts, longest, recorded.names, is_torn=recorded.loss is not None)
        violations = tuple(violations_of(piece))
        is_comparable = True
    except CannotJudgeError as error:
        judged.why_unjudged, is_comparable = str(error), False
    difference = _difference(recorded, parts, judged)
    why = judged.why_unjudged or ("" if difference else recorded.why_incomplete)
    return Conformance(
        title=recorded.title,
        edition=parts.name,
        num_events=recorded.num_events,
        num_steps=piece.fold.step - piece.first_step + 1,
        num_judged=difference.number if difference else judged.end,
        difference=difference,
        why_unjudged=why,
        violations=violations,
        note=" ".join(filter(None, (_late_note(recorded), recorded.note))),
        recorded=recorded if is_comparable else None,
        expected=judged.expected if is_comparable else None,
    )


def _late_note(recorded: Recorded) -> str:
    if not recorded.piece.is_late:
        return ""
    return f"The recording begins late: vLLM's decisions before step {recorded.piece.first_step} are not judged."


def _difference(recorded: Recorded, parts: Parts, judged: JudgedPiece) -> FirstDifference | None:
    if judged.parting is None:
        return _unexpressed_difference(recorded, parts, judged)
    number, events = judged.parting.moments[0], (judged.parting.recorded, judged.parting.expected)
    code, state = recorded.header.code, recorded.piece.timeline.state(number)
    side, request = side_of_recording(recorded.name, *events, code), request_of(events, recorded.names)
    if isinstance(events[0], ev.BlockUnpinned) and (entries := entries_of(state, events[0].block_id)):
        side, request = freed_in_use(side, events[0].block_id, entries[0]), name_of(entries[0][0], recorded.names)
    return FirstDifference(
        number=number,
        shown_at=(number + (events[0] is not None), judged.parting.moments[1] + (events[1] is not None)),
        step=state.step,
        request=request,
        recorded=side,
        expected=side_of_edition(parts, events[1], events[0]),
    )


def _unexpressed_difference(recorded: Recorded, parts: Parts, judged: JudgedPiece) -> FirstDifference | None:
    """Return the difference in an incomplete last call, if everything before it conforms.

    That is the first event of a kind that no edition has, or else a change that no event expresses.
    """
    loss, timeline = recorded.loss, recorded.piece.timeline
    if loss is None or not loss.by or judged.why_unjudged:
        return None
    following = enumerate(timeline.events(judged.end, timeline.end), judged.end)
    number, event = next((pair for pair in following if isinstance(pair[1], IN_NO_EDITION)), (judged.end, None))
    if event is None:
        side, step = unexpressed(recorded.name, loss.why, loss.by), recorded.piece.fold.step
    else:
        side = side_of_recording(recorded.name, event, None, recorded.header.code)
        step = timeline.state(number).step
    return FirstDifference(
        number=number,
        shown_at=(number + (event is not None), judged.expected.end),
        step=step,
        request=name_of(loss.request_id, recorded.names),
        recorded=side,
        expected=side_of_edition(parts, None),
    )
