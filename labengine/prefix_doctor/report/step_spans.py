"""When each step of a recording began and ended, in nanoseconds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import inf
from statistics import median

from labengine import events as ev
from labengine.prefix_doctor.look_ups.recorded_engine import RecordedEngine
from labengine.record.fold_state import FINISHED

Span = tuple[int, int]

UNKNOWN_STEP = 1_000_000
"""The duration of a step without a recorded time."""


def spans_of(recording: RecordedEngine, origin: float) -> dict[int, Span]:
    """Return (start, end) of each step, counted from `origin` in seconds.

    A step whose end is not recorded ends where the next one starts; the last one, and one after which no request is
    left, end after a typical duration. No step ends after the next one's start.
    """
    starts, idle = _starts(recording, origin), set(_idle_steps(recording))
    room = {step: starts[after] - starts[step] for step, after in pairwise(starts)}
    typical = int(median([span for step, span in room.items() if step not in idle] or [UNKNOWN_STEP]))
    spans = dict[int, Span]()
    for step, start in starts.items():
        most = room.get(step, typical)
        usual = min(most, typical) if step in idle else most
        seconds = recording.step_seconds.get(step) if step in recording.times else None
        last = usual if seconds is None else min(round(seconds * 1e9), room.get(step, inf))
        spans[step] = start, start + int(last)
    return spans


def _starts(recording: RecordedEngine, origin: float) -> dict[int, int]:
    """Return the start of each step. None starts before an earlier one, as a clock may be set back."""
    found, newest = dict[int, int](), 0
    for event in recording.events:
        if isinstance(event, ev.StepStarted):
            at = recording.times.get(event.step)
            unknown = newest + UNKNOWN_STEP * bool(found)
            found[event.step] = newest = unknown if at is None else max(newest, round((at - origin) * 1e9))
    return found


def _idle_steps(recording: RecordedEngine) -> Iterator[int]:
    """Yield the steps after which no request was left."""
    left = {i for i, one in recording.first.requests.items() if one.status != FINISHED}
    for event in recording.events:
        match event:
            case ev.RequestAdded(request_id):
                left.add(request_id)
            case ev.RequestFinished(request_id):
                left.discard(request_id)
            case ev.StepEnded(step) if not left:
                yield step
