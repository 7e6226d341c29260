"""A saved recording of a stream (a file of `attach --record`), read for judging."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any

from labengine import events as ev
from labengine.record.files.file import open_file
from labengine.record.files.file_access import Limits
from labengine.record.files.parsing import FACTS, INT, TEXT, TraceError
from labengine.record.timeline import Timeline
from labengine.vllm.conformance.recorded import SHUT_DOWN, Recorded
from labengine.vllm.stream.header import header_of
from labengine.vllm.stream.late_start import late_start_of
from labengine.vllm.stream.pieces import Loss, Piece
from labengine.vllm.stream.written import InnerStates

NO_INPUTS = "its oldest events are gone: judge the .labstream file next to it, or record with a larger --max-events"


def read_saved(place: str | PathLike[str], limits: Limits) -> Recorded:
    """Read a saved recording of a stream. Raises TraceError for a lab's, and for one of an earlier release."""
    run = open_file(place, limits)
    return recorded_in(run.timeline, run.facts, str(place))


def recorded_in(timeline: Timeline, facts: dict[str, Any], place: str) -> Recorded:
    """Return the stream in a saved recording. Raises TraceError as read_saved does."""
    try:
        stream = FACTS(facts.get("stream", {}))
        if "judged_by" not in stream:
            raise TraceError(
                f"{place} is a saved recording of a lab, or of an earlier release's attach, and cannot be judged: "
                f"`labengine open {place}` shows it"
            )
        return _recorded(timeline, facts, stream, place)
    except TraceError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise TraceError(f"{place} does not name its source ({error!r}): download it again") from None


def _recorded(timeline: Timeline, facts: dict[str, Any], stream: dict[str, Any], place: str) -> Recorded:
    said = FACTS(stream["judged_by"])
    header, ending = header_of(FACTS(said["header"]), place), TEXT(stream["end"] or "")
    piece = _piece(timeline, said, header.inner_states)
    gap = TEXT(said["gap"])
    why = f"a gap ({gap})" if gap else "" if ending in ("", SHUT_DOWN) else ending
    note = "" if ending or gap else "The recording ended while vLLM was running, and is judged up to its end."
    names = {int(number): TEXT(name) for number, name in FACTS(facts["request_names"]).items()}
    return Recorded(header, (piece,), names, why, note, is_cut=not ending)


def _piece(timeline: Timeline, said: dict[str, Any], inner_states: InnerStates | None) -> Piece:
    """Rebuild the piece, keeping finished requests that a live stream forgets, because the edition forgets none."""
    dropped, first, events = timeline.kept()
    if said["inputs"] is None or dropped:
        raise TraceError(NO_INPUTS)
    if events and isinstance(events[0], ev.EngineStarted):
        first.apply(events[0])
    piece = Piece(first, "", Timeline(len(events) + 1), inner_states=inner_states)
    for event in events:
        if not isinstance(event, (ev.EngineStarted, ev.RequestForgotten)):
            piece.record(event)
    forgotten = [number for number, event in enumerate(events) if isinstance(event, ev.RequestForgotten)]
    piece.take_inputs(_moved(said["inputs"], forgotten))
    piece.start = None if said["start"] is None else late_start_of(said["start"])
    piece.loss = None if said["loss"] is None else Loss(*said["loss"])
    return piece


def _moved(inputs: Iterable[Sequence[Any]], forgotten: Sequence[int]) -> Iterable[Sequence[Any]]:
    """Yield the inputs, each with its number of earlier events, without forgotten requests."""
    return ((INT(moment) - bisect_left(forgotten, moment), word, *values) for moment, word, values in inputs)
