"""Segments of a recording, and the header of a trace file, which lists them."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike
from typing import Any

from labengine.events import Event, Exact, StepStarted
from labengine.record.files.codec import KINDS, Kind, dumps, rows
from labengine.record.files.keyframe import keyframe
from labengine.record.files.parsing import TraceError, parsed
from labengine.record.files.shapes import shape_of
from labengine.record.fold import Fold, surviving

EVENTS_PER_SEGMENT = 4096
"""Minimum, except for the last segment and before a correction: a step is never split, so that a rolled-back one can be
left out.
"""

ROWS_PER_KEYFRAME = 2
"""Bytes of rows, per byte of the last keyframe, before the next keyframe: a state holds every request of the run."""

NO_KEYFRAME = b"null"


@dataclass(frozen=True, slots=True)
class Segment:
    """The events from moment `start` to `end` as JSON, and the steps that they belong to."""

    start: int
    end: int
    first_step: int
    last_step: int
    keyframe: bytes
    """The state at `start`; null if it follows from an earlier segment."""
    rows: bytes


def segments(
    start: int, state: Fold, events: Sequence[Event], corrections: Sequence[tuple[int, Fold]] = ()
) -> Iterator[Segment]:
    """Yield the segments of a recording that begins at moment `start`, and ends one at each correction.

    state: the one at `start`, to be moved. corrections: as of Timeline.
    """
    num_bytes_since, num_bytes_of_last = 0, 0
    corrected = {moment - start: state for moment, state in corrections}
    for low, high in _cuts(events, corrected):
        piece = events[low:high]
        keyframe_line = NO_KEYFRAME
        if low in corrected:
            state, num_bytes_of_last = corrected[low].copy(), 0
        if low == 0 or num_bytes_since >= ROWS_PER_KEYFRAME * num_bytes_of_last:
            keyframe_line = dumps(keyframe(state))
            num_bytes_since, num_bytes_of_last = 0, len(keyframe_line)
        row_bytes, step_before = dumps(rows(piece)), state.step
        num_bytes_since += len(row_bytes)
        move(state, piece)
        steps = [event.step for event in piece if type(event) is StepStarted] or [step_before]
        yield Segment(start + low, start + high, min(steps), max(steps), keyframe_line, row_bytes)


def move(state: Fold, events: Sequence[Event]) -> None:
    """Apply the events that were not rolled back. They begin outside a step or with its start."""
    for i in surviving(events):
        state.apply(events[i])
    state.take_changes()


def _cuts(events: Sequence[Event], corrected: Container[int]) -> Iterator[tuple[int, int]]:
    low = 0
    for i, event in enumerate(events):
        if (i - low >= EVENTS_PER_SEGMENT and type(event) is StepStarted) or (i in corrected and i):
            yield low, i
            low = i
    yield low, len(events)
    if len(events) in corrected:
        yield len(events), len(events)


# -- the file's header -------------------------------------------------------------------------------------------------


FORMAT = "labengine trace"
VERSION = 1
"""Version of the format. New kinds of events, and new fields with defaults, do not change it."""

Span = tuple[Exact, Exact, Exact, Exact]
"""(start, end, first step, last step) of a segment."""

_KINDS, _SPANS = shape_of(tuple[tuple[str, ...], ...]), shape_of(tuple[Span, ...])


@dataclass(frozen=True, slots=True)
class Header:
    """The kinds that the rows' numbers stand for, and the spans of the segments."""

    kinds: Sequence[Kind]
    segments: Sequence[Span]


def header_of(segments: Sequence[Segment]) -> dict[str, Any]:
    """Return the header, ready for `dumps`."""
    spans = [(s.start, s.end, s.first_step, s.last_step) for s in segments]
    return {"format": FORMAT, "version": VERSION, "kinds": KINDS, "segments": spans}


def read_header(path: str | PathLike[str], line: bytes) -> Header:
    """Return the header of the file at `path`. Raises TraceError for another format or an unknown version."""
    header = _document(line)
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise TraceError(f"{path} is not a labengine trace: use lab.save(...) to write one")
    if header.get("version") != VERSION:
        raise TraceError(
            f"{path} has format {header.get('version')!r}, but this labengine reads {VERSION}: "
            "open it with the version that saved it, or a newer one"
        )
    return _checked(path, header)


def _document(line: bytes) -> object:
    try:
        return parsed(line)
    except TraceError:
        return None


def _checked(path: str | PathLike[str], header: dict[str, Any]) -> Header:
    try:
        kinds = _KINDS(header["kinds"])
        spans: tuple[Span, ...] = _SPANS(header["segments"])
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(f"{path} has a damaged header ({error}): download it again") from None
    if not _adjoin(spans):
        raise TraceError(f"{path} has gaps in its recording: download it again")
    return Header([list(kind) for kind in kinds], spans)


def _adjoin(spans: Sequence[Span]) -> bool:
    """Return True if there are spans and each begins where the one before ends."""
    in_order = all(0 <= start <= end for start, end, _, _ in spans)
    return bool(spans) and in_order and all(one[1] == other[0] for one, other in pairwise(spans))
