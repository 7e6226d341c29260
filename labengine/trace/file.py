"""A recording as a file: gzip over lines of JSON, written whole or not at all, and refused at once when damaged.

    line 1      the header: {"format", "version", "kinds", "segments": [[start, end, first step, last step], ...]}
    line 2      the facts: what else is known of the run (its title, settings, inputs ...)
    line 3, 4   [[token_id, ...], [text, ...]] and [[step, ...], [seconds, ...]]
    then        two lines per segment: the state before it (or null), and its events
    last line   the state at the end

gzip's checksum finds every accident, and nothing in a file is ever run.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

from labengine.events import Event, RequestAdded, TokenSampled
from labengine.fold import Fold
from labengine.timeline import Timeline
from labengine.trace.atomic import write_whole
from labengine.trace.codec import dumps, keyframe
from labengine.trace.collector import collector_resting
from labengine.trace.errors import TraceError
from labengine.trace.header import header_of, read_header
from labengine.trace.parsing import parsed_as
from labengine.trace.recorded_timeline import RecordedTimeline
from labengine.trace.segments import Segment, segments
from labengine.trace.shapes import FACTS, IDS, NUMBER, TEXT, Shape, array_of, row_of

COMPRESSION = 5
"""Of gzip, 1 to 9; more takes longer and gains little."""

LINES_BEFORE = 4
"""Header, facts, texts and seconds."""


@dataclass(frozen=True)
class SavedRun:
    """What a file holds, decoded as far as somebody has looked."""

    timeline: RecordedTimeline
    facts: dict[str, Any]
    raw: bytes
    """The file itself."""
    text_line: bytes

    @cached_property
    def texts(self) -> dict[int, str]:
        """The text of each token that occurs."""
        return _table(TEXT, self.text_line)


def save(
    path: str | PathLike[str], timeline: Timeline, facts: Mapping[str, Any], token_text: Callable[[int], str]
) -> None:
    """Write all that a timeline keeps. facts: JSON types only. TraceError when the file cannot be written."""
    with collector_resting():
        lines = b"\n".join(_lines(timeline, facts, token_text))
    write_whole(path, gzip.compress(lines, COMPRESSION, mtime=0))


def open_file(path: str | PathLike[str]) -> SavedRun:
    """Read a file; events and states are decoded when they are asked for. TraceError for what is no sound trace."""
    raw = _content(path)
    lines = _unpacked(path, raw).split(b"\n")
    header = read_header(path, lines[0])
    if len(lines) != LINES_BEFORE + 2 * len(header.segments) + 1:
        raise TraceError(f"{path} is incomplete: get it again")
    _, facts, text_line, seconds, *pieces, last = lines
    found = [Segment(*spans, *pieces[2 * i : 2 * i + 2]) for i, spans in enumerate(header.segments)]
    timeline = RecordedTimeline(found, last, header.kinds, _table(NUMBER, seconds))
    return SavedRun(timeline, parsed_as(FACTS, facts), raw, text_line)


def _lines(timeline: Timeline, facts: Mapping[str, Any], token_text: Callable[[int], str]) -> Iterator[bytes]:
    start, state, events = timeline.kept()
    seconds = dict(timeline.step_seconds)
    token_ids = sorted(_token_ids(state, events))
    cut = list(segments(start, state, events))
    yield dumps(header_of(cut))
    yield dumps(dict(facts))
    yield dumps((token_ids, list(map(token_text, token_ids))))
    yield dumps((list(seconds), [round(taken, 7) for taken in seconds.values()]))
    for segment in cut:
        yield segment.keyframe
        yield segment.rows
    yield dumps(keyframe(state))


def _table(values: Shape, line: bytes) -> dict[int, Any]:
    """[[key, ...], [value, ...]] as a dictionary."""
    columns = row_of(IDS, array_of(values))
    table: dict[int, Any] = parsed_as(Shape((list,), lambda pair: dict(zip(*columns(pair), strict=True))), line)
    return table


def _token_ids(state: Fold, events: Iterable[Event]) -> set[int]:
    token_ids = {token_id for request in state.requests.values() for token_id in request.token_ids}
    token_ids.update(token_id for ids in state.block_tokens for token_id in ids)
    for event in events:
        if type(event) is TokenSampled:
            token_ids.add(event.token_id)
        elif type(event) is RequestAdded:
            token_ids.update(event.token_ids)
    return token_ids


def _content(path: str | PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, TypeError, ValueError) as error:
        raise TraceError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _unpacked(path: str | PathLike[str], raw: bytes) -> bytes:
    if not raw.startswith(b"\x1f\x8b"):
        raise TraceError(f"{path} is no trace of labengine: lab.save(...) writes them")
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{path} is damaged or incomplete ({error}): get it again") from None
