"""A stream read for judging: its header, its first piece, and the reason that the rest is not judged."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike

from labengine.record.files.file_access import Limits
from labengine.record.files.parsing import TraceError
from labengine.record.wording import readable
from labengine.vllm.stream.header import StreamHeader
from labengine.vllm.stream.pieces import Loss, Piece
from labengine.vllm.stream.reader import StreamReader

SHUT_DOWN = "the engine was shut down"
"""The end of a complete stream."""


@dataclass(frozen=True)
class Recorded:
    """A stream after reading.

    pieces: its stretches without a gap, in order.
    """

    header: StreamHeader
    pieces: tuple[Piece, ...]
    names: dict[int, str]
    """The engine's names of the requests."""
    why_incomplete: str
    """The reason that this piece is not all: a gap, or a stream without an end that was never idle; else empty."""
    note: str
    """A sentence on the point up to which an endless stream is judged; empty for a stream with an end."""
    is_cut: bool
    """True for a stream without an end."""

    @property
    def piece(self) -> Piece:
        """The first stretch without a gap, the only one with known cached content, which an edition can follow."""
        return self.pieces[0]

    @property
    def num_events(self) -> int:
        """Events of all pieces."""
        return sum(piece.timeline.end for piece in self.pieces)

    @property
    def loss(self) -> Loss | None:
        """The reason that the tap lost rows at the piece's end, in the middle of a call; None if it did not."""
        return self.piece.loss

    @property
    def title(self) -> str:
        """One line: engine, rank and model."""
        return f"{self.name} · rank {self.header.rank} · {self.header.model_name}"

    @property
    def name(self) -> str:
        """The engine's name and release, and its scheduler's class."""
        return f"{readable(self.header.engine)} {readable(self.header.scheduler)}"

    @property
    def why_not_from_start(self) -> str:
        """The reason that not even the first event can be judged; empty if it can."""
        timeline = self.piece.timeline
        if timeline.num_dropped:
            return f"its first {timeline.num_dropped:,} events were not kept: use a larger max_events"
        return ""


def read(place: str | PathLike[str], limits: Limits, max_events: int) -> Recorded:
    """Read a file, or the folder of LABENGINE_TAP=file:DIR. Raises ConfigError, or TraceError for a damaged file.

    An event that is impossible in the current state (the engine may be broken) ends the reading; earlier ones are kept.
    """
    reader = StreamReader(limits, max_events)
    ending = ""
    try:
        is_complete = reader.take_files(place)
    except TraceError as error:
        if not reader.pieces:
            raise
        is_complete, ending = True, readable(str(error), 400)
    return recorded_by(reader, place, ending, is_complete=is_complete)


def recorded_by(
    reader: StreamReader, place: str | PathLike[str], ending: str = "", *, is_complete: bool = True
) -> Recorded:
    """Return the stream that a reader has read.

    ending: why reading ended early; is_complete: False if the last line was cut off. Raises TraceError for a stream
    without a keyframe.
    """
    if reader.header is None or not reader.pieces:
        raise TraceError(f"{place} has no keyframe yet: the engine has only just started, or the file is cut off")
    pieces = reader.pieces
    why, note = ending or _why_incomplete(reader, is_complete), ""
    if not ending and reader.end is None and len(pieces) == 1 and reader.gap is None and pieces[0].idle_at is not None:
        cut = "" if is_complete else " in the middle of a line"
        note = (
            f"The stream stops{cut} without an end (vLLM still runs, or was killed, as an LLM() is when its process "
            f"ends). It is judged up to event {pieces[0].idle_at:,}, after which all requests were done."
        )
        why = ""
    return Recorded(reader.header, tuple(pieces), reader.names, why, note, is_cut=reader.end is None)


def _why_incomplete(reader: StreamReader, is_complete: bool) -> str:
    if len(reader.pieces) > 1:
        return f"a gap ({readable(reader.pieces[1].gap, 400)})"
    if reader.gap is not None:
        return f"a gap ({readable(reader.gap, 400)}), and no keyframe followed"
    if reader.end is None:
        cut = " in the middle of a line" if not is_complete else ""
        return f"the stream stops{cut} without an end: the engine is still running, or was killed"
    return "" if reader.end == SHUT_DOWN else readable(reader.end, 400)
