"""A trace file's header: its format and version, its kinds of events, and its segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike
from typing import Any

from labengine.trace.codec import KINDS, Kind
from labengine.trace.parsing import INT, TEXT, TraceError, array_of, parsed, row_of
from labengine.trace.segments import Segment

FORMAT = "labengine trace"
VERSION = 1
"""Grows when a file can no longer be read as before. New kinds of events, and new fields with defaults, need none."""

Span = tuple[int, int, int, int]
"""(start, end, first step, last step) of a segment."""


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
        raise TraceError(f"{path} is no trace of labengine: lab.save(...) writes them")
    if header.get("version") != VERSION:
        raise TraceError(
            f"{path} has format {header.get('version')!r}, and this labengine reads {VERSION}: "
            "open it with the labengine that saved it, or a newer one"
        )
    return _checked(path, header)


def _document(line: bytes) -> object:
    try:
        return parsed(line)
    except TraceError:
        return None


def _checked(path: str | PathLike[str], header: dict[str, Any]) -> Header:
    try:
        kinds = array_of(array_of(TEXT))(header["kinds"])
        spans: tuple[Span, ...] = array_of(row_of(INT, INT, INT, INT))(header["segments"])
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(f"{path} has a damaged header ({error}): get it again") from None
    if not _adjoin(spans):
        raise TraceError(f"{path} has gaps in its recording: get it again")
    return Header([list(kind) for kind in kinds], spans)


def _adjoin(spans: Sequence[Span]) -> bool:
    """Return True if there are spans, and each begins where the one before ends."""
    in_order = all(0 <= start <= end for start, end, _, _ in spans)
    return bool(spans) and in_order and all(one[1] == other[0] for one, other in pairwise(spans))
