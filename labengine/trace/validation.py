"""Validation of a recording: every row and every keyframe is checked once, from beginning to end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labengine.fold import Fold
from labengine.trace.codec import KINDS, fold_of
from labengine.trace.columns import PoolSize
from labengine.trace.field_checks import check_columns, check_keyframe
from labengine.trace.limits import Limits
from labengine.trace.parsing import TraceError, parsed
from labengine.trace.recorded_timeline import RecordedTimeline
from labengine.trace.segments import NO_KEYFRAME, Segment
from labengine.trace.sequence import SequenceCheck

_NAMES = [name for name, *_ in KINDS]
_STARTED, _ENGINE = _NAMES.index("StepStarted"), _NAMES.index("EngineStarted")


def validate(timeline: RecordedTimeline, limits: Limits) -> None:
    """Raise TraceError, naming the first wrong place, for a recording that cannot be shown or exported."""
    state = _keyframe(timeline.segments[0].keyframe, limits)
    pool, sequence = PoolSize(len(state.ref_counts), len(state.groups)), SequenceCheck(state)
    for number, segment in enumerate(timeline.segments):
        limits.refuse_late()
        if number and segment.keyframe != NO_KEYFRAME:
            _compare(_keyframe(segment.keyframe, limits), sequence, pool, segment.start)
        limits.refuse_line(segment.rows)
        rows = timeline.rows_of(number)
        try:
            if not number and rows:
                pool = _pool(rows[0], pool, limits)
            check_columns(rows, pool)
            step = sequence.step
            sequence.follow(rows)
            _check_steps(segment, [row[1] for row in rows if row[0] == _STARTED] or [step])
        except (LookupError, TypeError, ValueError) as error:
            where = f"among events {segment.start} to {segment.end}"
            raise TraceError(f"{limits.path} does not add up {where} ({error}): get it again") from None
    _compare(_keyframe(timeline.last_keyframe, limits), sequence, pool, timeline.end)


def _keyframe(line: bytes, limits: Limits) -> Fold:
    limits.refuse_line(line)
    document = parsed(line)
    try:
        limits.refuse_pool(len(document["ref_counts"]))
        check_keyframe(document)
    except TraceError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise TraceError(f"{limits.path} has a keyframe that is none ({error}): get it again") from None
    return fold_of(document)


def _pool(row: Sequence[Any], pool: PoolSize, limits: Limits) -> PoolSize:
    """Return the pool of the engine that a recording begins with, else the keyframe's."""
    if row[0] != _ENGINE:
        return pool
    check_columns([row], pool)
    limits.refuse_pool(row[1])
    return PoolSize(row[1], len(row[2]))


def _compare(state: Fold, sequence: SequenceCheck, pool: PoolSize, moment: int) -> None:
    if PoolSize(len(state.ref_counts), len(state.groups)) != pool or not sequence.matches(state):
        raise TraceError(f"the trace contradicts itself: its events and its keyframe at {moment} differ: get it again")


def _check_steps(segment: Segment, steps: Sequence[int]) -> None:
    if (segment.first_step, segment.last_step) != (min(steps), max(steps)):
        raise ValueError(f"the header has steps {segment.first_step} to {segment.last_step}")
