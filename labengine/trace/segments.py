"""Segments of a recording: cut at starts of steps, read one at a time, some with the state before them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from labengine.events import Event, StepStarted
from labengine.fold import Fold, surviving
from labengine.trace.codec import dumps, keyframe, rows

EVENTS_PER_SEGMENT = 4096
"""Minimum, except for the last: a step is never cut, so that a rolled-back one can be left out."""

ROWS_PER_KEYFRAME = 2
"""Bytes of rows per byte of the last keyframe before the next one: a state holds every request of the run."""

NO_KEYFRAME = b"null"


@dataclass(frozen=True, slots=True)
class Segment:
    """The events from moment `start` to `end`, as JSON, and the steps that they belong to."""

    start: int
    end: int
    first_step: int
    last_step: int
    keyframe: bytes
    """The state at `start`; null when it follows from an earlier segment."""
    rows: bytes


def segments(start: int, state: Fold, events: Sequence[Event]) -> Iterator[Segment]:
    """Yield the segments of a recording that begins at moment `start`; `state` is moved to its end."""
    num_bytes_since, num_bytes_of_last = 0, 0
    for low, high in _cuts(events):
        piece = events[low:high]
        keyframe_line = NO_KEYFRAME
        if low == 0 or num_bytes_since >= ROWS_PER_KEYFRAME * num_bytes_of_last:
            keyframe_line = dumps(keyframe(state))
            num_bytes_since, num_bytes_of_last = 0, len(keyframe_line)
        row_bytes, step_before = dumps(rows(piece)), state.step
        num_bytes_since += len(row_bytes)
        move(state, piece)
        steps = [event.step for event in piece if type(event) is StepStarted] or [step_before]
        yield Segment(start + low, start + high, min(steps), max(steps), keyframe_line, row_bytes)


def move(state: Fold, events: Sequence[Event]) -> None:
    """Apply the events that were not rolled back; they begin outside a step, or with its start."""
    for i in surviving(events):
        state.apply(events[i])
    state.take_changes()


def _cuts(events: Sequence[Event]) -> Iterator[tuple[int, int]]:
    low = 0
    for i, event in enumerate(events):
        if i - low >= EVENTS_PER_SEGMENT and type(event) is StepStarted:
            yield low, i
            low = i
    yield low, len(events)
