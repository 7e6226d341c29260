"""Open the files of the tap on a vLLM scheduler, or follow a running one: a recording for all views."""

from __future__ import annotations

from os import PathLike

from labengine.config import ConfigError, checked_int
from labengine.record.files.file import packed, run_of
from labengine.record.files.file_access import MAX_BYTES, Limits
from labengine.record.files.parsing import TraceError
from labengine.session.saved.trace import Trace
from labengine.session.saved.viewed_recording import ViewedRecording
from labengine.session.settings import refuse_unknown
from labengine.vllm.cache_events.places import is_kv_place
from labengine.vllm.stream.description import STEPS_ARE_OF_VLLM, facts_of, note_of
from labengine.vllm.stream.endpoints import endpoints, is_live
from labengine.vllm.stream.live import LiveStream
from labengine.vllm.stream.reader import StreamReader
from labengine.vllm.stream.token_texts import TokenText, token_text_of

MAX_EVENTS = 1_000_000
MAX_LIVE_EVENTS = 100_000
MAX_SECONDS = 600.0
"""Seconds that reading a stream may take by default, since it is longer than a saved session."""


def attach(
    place: str | PathLike[str],
    *,
    piece: int | None = None,
    rank: int | None = None,
    tokenizer: str | PathLike[str] | None = None,
    max_events: int | None = None,
    max_bytes: int = MAX_BYTES,
    max_seconds: float = MAX_SECONDS,
    **unknown: object,
) -> ViewedRecording:
    """Attach to a vLLM with the tap: a running one (unix:DIR, tcp:127.0.0.1:PORT), or the files of file:DIR.

    A running one returns a LiveStream, which follows it until close(); files return a Trace. piece: from 1, by default
    the last; files have several pieces if events are missing or contradict the engine. rank: the engine, if several
    run. tokenizer: a model's directory or name, for the text of tokens. max_events: newest events kept (1,000,000; live
    100,000). max_bytes, max_seconds: memory and time that opening may take. Raises ConfigError or, for a damaged file,
    TraceError.
    """
    refuse_unknown("attach()", unknown, attach)
    if is_kv_place(place):
        raise ConfigError(
            "KV events have no blocks to step through: use labengine.kv_events(...) to see their prefixes"
        )
    limits = Limits(place, max_bytes, max_seconds)
    token_text = token_text_of(tokenizer)
    if max_events is not None:
        max_events = checked_int("max_events", max_events, 1)
    if is_live(place):
        if piece is not None:
            raise ConfigError("piece= is only for files; a live stream begins now, and has piece(n) for gaps")
        found = endpoints(place)
        return LiveStream.attached(found, rank, token_text, max_events or MAX_LIVE_EVENTS, max_bytes)
    if rank is not None:
        raise ConfigError("rank= is only for a running vLLM: name that rank's file instead")
    return _opened(place, StreamReader(limits, max_events or MAX_EVENTS), piece, token_text, limits)


def _opened(
    place: str | PathLike[str], reader: StreamReader, piece: int | None, token_text: TokenText, limits: Limits
) -> Trace:
    """Open the files of a stream."""
    is_cut = not reader.take_files(place)
    if not reader.pieces:
        raise TraceError(f"{place} has no keyframe yet: the engine has only just started, or the file is cut off")
    newest = reader.newest
    number = newest if piece is None else checked_int("piece", piece, 1, newest)
    cut = " in the middle of a line" if is_cut else ""
    ended = f"The stream stops{cut} without an end: the engine is still running, or it or its recorder was killed."
    first = f"{ended} {STEPS_ARE_OF_VLLM}" if reader.end is None and reader.gap is None else STEPS_ARE_OF_VLLM
    note = note_of(reader, number, end="", first=first)
    timeline = reader.piece(number).timeline
    return Trace(run_of(packed(timeline, facts_of(reader, number, note), token_text), limits))
