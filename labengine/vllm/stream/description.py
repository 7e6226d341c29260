"""The description of a stream's recording: title, facts, and sentences on missing data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from labengine import events as ev
from labengine.record.gap import Gap
from labengine.record.wording import readable
from labengine.vllm.stream.pieces import EDITION, Piece
from labengine.vllm.stream.reader import StreamReader

STEPS_ARE_OF_VLLM = "This is a recording of a vLLM scheduler, without an engine to step."
NO_TOKENS = "Token ids were omitted (LABENGINE_TAP_TOKENS=0): only their number and the blocks' hashes are known."
IS_LIVE = "Live from a vLLM scheduler: the views follow it, but it cannot be stepped here."


def facts_of(reader: StreamReader, number: int, note: str) -> dict[str, Any]:
    """Return the facts for a file of one piece, in JSON types."""
    header, piece = reader.header, reader.piece(number)
    assert header is not None
    return {
        "title": title_of(reader, number),
        "edition": EDITION,
        "note": note,
        "num_steps": piece.fold.step,
        "num_violations": len(piece.contradictions[:1]),
        "code": header.code,
        "stream": {
            "engine": readable(header.engine),
            "scheduler": readable(header.scheduler),
            "model": readable(header.model),
            "rank": header.rank,
            "piece": number,
            "gaps": [one.gap for one in reader.pieces],
            "gap_before": fact_of(piece.timeline.gap_before),
            "gap_after": fact_of(piece.timeline.gap_after),
            "end": reader.end,
            "judged_by": judged_by(reader, number),
        },
        "request_names": {str(i): readable(reader.names[i]) for i in sorted(_requests_of(piece) & reader.names.keys())},
    }


def _requests_of(piece: Piece) -> set[int]:
    """Return all requests in a piece's events, because a live piece forgets finished requests."""
    added = {event.request_id for event in piece.timeline.of_kind(ev.RequestAdded)}
    return added | piece.fold.requests.keys() | (piece.start.requests.keys() if piece.start is not None else set())


def judged_by(reader: StreamReader, number: int) -> dict[str, Any]:
    """Return the data that `conform` needs besides a piece's events, in JSON types.

    gap: the gap that ends the piece; empty without one. inputs: None if they were dropped.
    """
    header, piece = reader.header, reader.piece(number)
    assert header is not None
    is_newest = number == reader.newest
    return {
        "header": header.document,
        "start": None if piece.start is None else dict(piece.start.document),
        "inputs": piece.inputs if piece.has_inputs else None,
        "loss": piece.loss,
        "gap": (reader.gap or "") if is_newest else reader.piece(number + 1).gap,
    }


def fact_of(gap: Gap | None) -> dict[str, Any] | None:
    """Return a gap in JSON types."""
    return None if gap is None else asdict(gap)


def title_of(reader: StreamReader, number: int) -> str:
    """Return one line: engine, rank, model, scheduler, pool, and piece, the most important first for narrow views."""
    header, piece = reader.header, reader.piece(number)
    assert header is not None
    sizes = ", ".join(str(group.block_size) for group in piece.fold.groups)
    parts = [
        readable(header.engine),
        f"rank {header.rank}",
        header.model_name,
        ", ".join(map(readable, (header.scheduler, *(header.features or ())))),
        f"{len(piece.fold.ref_counts)} blocks of {sizes}",
    ]
    if reader.newest > 1:
        parts.append(f"piece {number} of {reader.newest}")
    return " · ".join(parts)


def note_of(reader: StreamReader, number: int, *, end: str, first: str = STEPS_ARE_OF_VLLM) -> str:
    """Return sentences on missing data in a recording, shown instead of the controls.

    end: a sentence on its end if the stream has none. first: the first sentence.
    """
    piece, notes = reader.piece(number), [first]
    if reader.header is not None and not reader.header.has_tokens:
        notes.append(NO_TOKENS)
    if piece.gap:
        after = ", after a gap" if number > 1 else ""
        notes.append(f"It begins before step {piece.first_step}{after}: {readable(piece.gap, 400)}.")
    if number < reader.newest:
        following = reader.piece(number + 1)
        notes.append(f"It ends at a gap: {readable(following.gap, 400)}. Piece {number + 1} follows.")
    elif reader.gap is not None:
        notes.append(f"It ends at a gap: {readable(reader.gap, 400)}; no keyframe followed.")
    elif reader.end is not None:
        notes.append(f"It ends because {readable(reader.end, 400)}.")
    elif end:
        notes.append(end)
    return " ".join(notes)
