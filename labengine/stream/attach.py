"""Open what the tap on a vLLM scheduler has written: a recording that every view shows."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

from labengine.config import ConfigError, checked_int
from labengine.engine.sources import model_path
from labengine.engine.tokenizer import TOKENIZER_FILES, HuggingFaceTokenizer, has_tokenizer
from labengine.session.saved.trace import Trace
from labengine.session.settings import refuse_unknown
from labengine.stream.files import lines_of, stream_files
from labengine.stream.methods import code_of
from labengine.stream.pieces import EDITION, Piece
from labengine.stream.reader import StreamReader
from labengine.trace.file import packed, run_of
from labengine.trace.file_access import MAX_BYTES, Limits
from labengine.trace.parsing import TraceError
from labengine.wording import readable

MAX_EVENTS = 1_000_000
MAX_SECONDS = 600.0
"""Seconds that reading a stream may take by default: it is longer than a saved session."""

STEPS_ARE_OF_VLLM = "This is a recording of a vLLM scheduler: there is no engine here to step."


def attach(
    place: str | PathLike[str],
    *,
    piece: int | None = None,
    tokenizer: str | PathLike[str] | None = None,
    max_events: int = MAX_EVENTS,
    max_bytes: int = MAX_BYTES,
    max_seconds: float = MAX_SECONDS,
    **unknown: object,
) -> Trace:
    """Open a stream of the tap on vLLM: a file, or the folder of LABENGINE_TAP=file:DIR.

    piece: where events are missing, or the engine contradicted them, the stream has several pieces; from 1, by default
    the last. tokenizer: a model's directory or name, for the text of tokens. max_events: kept of a piece, the newest.
    max_bytes, max_seconds: memory and time that opening may take. Raises ConfigError or, for what is damaged,
    TraceError.
    """
    refuse_unknown("attach()", unknown, attach)
    limits = Limits(place, max_bytes, max_seconds)
    token_text = _token_text(tokenizer)
    reader = StreamReader(limits, checked_int("max_events", max_events, 1))
    is_cut = _read(reader, place)
    if not reader.pieces:
        raise TraceError(f"{place} has no keyframe yet: the engine has just been started, or the file is cut off")
    number = len(reader.pieces) if piece is None else checked_int("piece", piece, 1, len(reader.pieces))
    shown = reader.pieces[number - 1]
    run = run_of(packed(shown.timeline, _facts(reader, number, is_cut), token_text), limits)
    return Trace(run)


def _read(reader: StreamReader, place: str | PathLike[str]) -> bool:
    """Read all complete lines; return whether the stream ends in the middle of one."""
    is_complete = True
    for file in stream_files(place):
        for line, is_complete in lines_of(file):
            if is_complete:
                reader.take(line)
    return not is_complete


def _token_text(tokenizer: str | PathLike[str] | None) -> Callable[[int], str]:
    if tokenizer is None:
        return lambda token_id: f"<#{token_id}>"
    directory = Path(tokenizer) if Path(tokenizer).is_dir() else model_path(tokenizer)
    if not has_tokenizer(directory):
        raise ConfigError(f"{directory} has no tokenizer ({', '.join(TOKENIZER_FILES)})")
    return HuggingFaceTokenizer(directory).token_text


def _facts(reader: StreamReader, number: int, is_cut: bool) -> dict[str, Any]:
    header, piece = reader.header, reader.pieces[number - 1]
    assert header is not None
    return {
        "title": _title(reader, number),
        "edition": EDITION,
        "note": " ".join(_notes(reader, number, is_cut)),
        "num_steps": piece.fold.step,
        "num_violations": len(piece.contradictions[:1]),
        "code": code_of(header.methods, header.engine),
        "stream": {
            "engine": readable(header.engine),
            "scheduler": readable(header.scheduler),
            "model": readable(header.model),
            "rank": header.rank,
            "piece": number,
            "gaps": [one.gap for one in reader.pieces],
            "end": reader.end,
        },
        "request_names": {str(i): readable(name) for i, name in reader.names.items() if i in piece.fold.requests},
    }


def _title(reader: StreamReader, number: int) -> str:
    header, piece = reader.header, reader.pieces[number - 1]
    assert header is not None
    sizes = ", ".join(str(group.block_size) for group in piece.fold.groups)
    parts = [
        f"{readable(header.engine)} {readable(header.scheduler)}",
        f"rank {header.rank}",
        readable(header.model.rstrip("/").rpartition("/")[2]),
        f"{len(piece.fold.ref_counts)} blocks of {sizes}",
    ]
    if len(reader.pieces) > 1:
        parts.append(f"piece {number} of {len(reader.pieces)}")
    return " · ".join(parts)


def _notes(reader: StreamReader, number: int, is_cut: bool) -> list[str]:
    """Return sentences on what this recording lacks, shown in place of the controls."""
    piece, notes = reader.pieces[number - 1], [STEPS_ARE_OF_VLLM]
    if piece.gap:
        notes.append(f"It begins before step {piece.first_step}, after a gap: {readable(piece.gap, 400)}.")
    if number < len(reader.pieces):
        following: Piece = reader.pieces[number]
        notes.append(f"It ends at a gap: {readable(following.gap, 400)}. Piece {number + 1} goes on after it.")
    elif reader.gap is not None:
        notes.append(f"It ends at a gap: {readable(reader.gap, 400)}; no keyframe followed.")
    elif reader.end is None:
        cut = " in the middle of a line" if is_cut else ""
        notes.append(f"The stream ends{cut} without an end: the engine still runs, or was killed.")
    else:
        notes.append(f"It ends because {readable(reader.end, 400)}.")
    return notes
