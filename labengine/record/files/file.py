"""A recording as a file: gzip over lines of JSON, written atomically, and refused when damaged.

    line 1      the header: {"format", "version", "kinds", "segments": [[start, end, first step, last step], ...]}
    line 2      the facts: everything else about the run (its title, settings, inputs, ...)
    line 3, 4   [[token_id, ...], [text, ...]] and [[step, ...], [seconds, ...]]
    then        two lines per segment: the state before it (or null), and its events
    last line   the state at the end

gzip's checksum detects accidental damage, and nothing in a file is ever executed.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from labengine.events import Event, RequestAdded, TokenIds, TokenSampled
from labengine.record.files.codec import KINDS, check_rows, dumps
from labengine.record.files.file_access import Limits, content, parsed_size, replace_file, unpacked
from labengine.record.files.keyframe import checked_fold, keyframe
from labengine.record.files.parsing import FACTS, TraceError, parsed, parsed_as
from labengine.record.files.recorded_timeline import CACHED_SEGMENTS, CACHED_STATES, RecordedTimeline
from labengine.record.files.segments import NO_KEYFRAME, Segment, header_of, read_header, segments
from labengine.record.files.sequence import SequenceCheck
from labengine.record.files.shapes import PoolSize, Shape, shape_of
from labengine.record.fold import Fold
from labengine.record.timeline import Timeline
from labengine.system.garbage_collection import garbage_collection_paused

COMPRESSION = 5
"""gzip's level, 1 to 9; higher levels take longer and gain little."""

LINES_BEFORE = 4
"""Header, facts, texts and seconds."""


@dataclass(frozen=True)
class SavedRun:
    """A file's content, decoded on demand."""

    timeline: RecordedTimeline
    facts: dict[str, Any]
    """JSON values from the session, passed on unchanged."""
    raw: bytes
    """The file's bytes."""
    texts: dict[int, str]
    """The text of each token id in the recording."""


def save(
    path: str | PathLike[str], timeline: Timeline, facts: Mapping[str, Any], token_text: Callable[[int], str]
) -> None:
    """Write everything that a timeline keeps. facts: JSON types only. Raises TraceError if writing fails."""
    replace_file(path, packed(timeline, facts, token_text))


def packed(timeline: Timeline, facts: Mapping[str, Any], token_text: Callable[[int], str]) -> bytes:
    """Return the bytes of the file that `save` writes."""
    with garbage_collection_paused():
        lines = b"\n".join(_lines(timeline, facts, token_text))
    return gzip.compress(lines, COMPRESSION, mtime=0)


def open_file(path: str | PathLike[str], limits: Limits | None = None) -> SavedRun:
    """Read a file; events and states are decoded on demand.

    Raises TraceError for an invalid trace, and for one that would take more memory or time than allowed.
    """
    limits = limits or Limits(path)
    return run_of(content(path, limits), limits)


def run_of(raw: bytes, limits: Limits) -> SavedRun:
    """Return the run in a file's bytes, decoded on demand. Raises TraceError as open_file does."""
    path, lines = str(limits.path), unpacked(raw, limits).split(b"\n")
    for line in lines[:LINES_BEFORE]:
        limits.refuse_line(line)
    header = read_header(path, lines[0])
    if len(lines) != LINES_BEFORE + 2 * len(header.segments) + 1:
        raise TraceError(f"{path} is incomplete: download it again")
    _, facts, text_line, seconds, *pieces, last = lines
    found = [Segment(*spans, *pieces[2 * i : 2 * i + 2]) for i, spans in enumerate(header.segments)]
    timeline = RecordedTimeline(found, last, header.kinds, _table(_SECONDS, seconds), _cache_sizes(found, last, limits))
    validate(timeline, limits)
    return SavedRun(timeline, parsed_as(FACTS, facts), raw, _table(_TEXTS, text_line))


def _lines(timeline: Timeline, facts: Mapping[str, Any], token_text: Callable[[int], str]) -> Iterator[bytes]:
    start, state, events = timeline.kept()
    seconds = dict(timeline.step_seconds)
    token_ids = sorted(_token_ids(state, events))
    end = start + len(events)
    cut = list(segments(start, state, events, timeline.corrections(start, end)))
    yield dumps(header_of(cut))
    yield dumps(dict(facts))
    yield dumps((token_ids, list(map(token_text, token_ids))))
    yield dumps((list(seconds), [round(taken, 7) for taken in seconds.values()]))
    for segment in cut:
        yield segment.keyframe
        yield segment.rows
    yield dumps(keyframe(timeline.state(end)))


_SECONDS = shape_of(tuple[tuple[int, ...], tuple[float, ...]])
_TEXTS = shape_of(tuple[TokenIds, tuple[str, ...]])


def _table(shape: Shape, line: bytes) -> dict[int, Any]:
    """Parse [[key, ...], [value, ...]] into a dictionary."""
    keys, values = parsed_as(shape, line)
    if len(keys) != len(values):
        raise TraceError("the trace is damaged (a table's two columns have different lengths): download it again")
    return dict(zip(keys, values, strict=True))


def _token_ids(state: Fold, events: Iterable[Event]) -> set[int]:
    token_ids = {token_id for request in state.requests.values() for token_id in request.token_ids}
    token_ids.update(token_id for ids in state.block_tokens for token_id in ids)
    for event in events:
        if type(event) is TokenSampled:
            token_ids.add(event.token_id)
        elif type(event) is RequestAdded:
            token_ids.update(event.token_ids)
    return token_ids


def _cache_sizes(found: list[Segment], last_keyframe: bytes, limits: Limits) -> tuple[int, int]:
    """Return how many segments (as rows and as events) and how many states may be kept decoded."""
    largest = max((parsed_size(segment.rows) for segment in found), default=0)
    num_segments = limits.cache_size(CACHED_SEGMENTS, 2 * largest)
    return num_segments, limits.cache_size(CACHED_STATES, 2 * parsed_size(last_keyframe))


# -- validation: every row and every keyframe is checked once, from beginning to end -----------------------------------


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
            check_rows(rows, pool)
            step = sequence.step
            sequence.follow(rows)
            _check_steps(segment, [row[1] for row in rows if row[0] == _STARTED] or [step])
        except (LookupError, TypeError, ValueError) as error:
            where = f"in events {segment.start} to {segment.end}"
            raise TraceError(f"{limits.path} is inconsistent {where} ({error}): download it again") from None
    _compare(_keyframe(timeline.last_keyframe, limits), sequence, pool, timeline.end)


def _keyframe(line: bytes, limits: Limits) -> Fold:
    limits.refuse_line(line)
    document = parsed(line)
    if isinstance(document, dict) and isinstance(counts := document.get("ref_counts"), list):
        limits.refuse_pool(len(counts))
    try:
        return checked_fold(document)
    except ValueError as error:
        raise TraceError(f"{limits.path}: {error}: download it again") from None


def _pool(row: Sequence[Any], pool: PoolSize, limits: Limits) -> PoolSize:
    """Return the pool size of the engine that a recording begins with, else the keyframe's."""
    if row[0] != _ENGINE:
        return pool
    check_rows([row], pool)
    limits.refuse_pool(row[1])
    return PoolSize(row[1], len(row[2]))


def _compare(state: Fold, sequence: SequenceCheck, pool: PoolSize, moment: int) -> None:
    if PoolSize(len(state.ref_counts), len(state.groups)) != pool or not sequence.matches(state):
        raise TraceError(
            f"the trace contradicts itself (events and keyframe differ at moment {moment}): download it again"
        )


def _check_steps(segment: Segment, steps: Sequence[int]) -> None:
    if (segment.first_step, segment.last_step) != (min(steps), max(steps)):
        raise ValueError(f"the header says steps {segment.first_step} to {segment.last_step}")
