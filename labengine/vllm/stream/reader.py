"""Reads the lines of a stream into pieces; a new piece begins after a gap or a contradiction."""

from __future__ import annotations

from os import PathLike
from typing import Any

from labengine.record.files.file_access import MAX_ALLOWED_SECONDS, Limits
from labengine.record.files.keyframe import checked_fold
from labengine.record.files.parsing import FACTS, INT, SECONDS, TEXT, TraceError, parsed
from labengine.record.fold import Fold
from labengine.record.gap import Gap
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline
from labengine.record.wording import readable
from labengine.vllm.stream.contradictions import contradictions
from labengine.vllm.stream.files import lines_of, stream_files
from labengine.vllm.stream.header import StreamHeader, header_of
from labengine.vllm.stream.late_start import late_start_of
from labengine.vllm.stream.pieces import Loss, Piece
from labengine.vllm.stream.written import InnerStates

MAX_WHY = 200
"""Most characters of a gap's reason, which comes from the stream."""


class StreamReader:
    """Reads a stream's untrusted lines in order. Raises TraceError for an unreadable one."""

    def __init__(self, limits: Limits, max_events: int) -> None:
        self._limits, self._max_events = limits, max_events
        self.header: StreamHeader | None = None
        self.pieces: list[Piece] = []
        self.num_forgotten = 0
        """Number of pieces before the first one here, which are no longer kept."""
        self.names: dict[int, str] = {}
        """vLLM's names of the requests."""
        self.end: str | None = None
        """The reason that the stream gives for its end, if any."""
        self._next = 0
        """Number of the next message."""
        self.gap: str | None = None
        """The reason that the newest events could not be recorded, without a keyframe since; None if they were."""

    @property
    def newest(self) -> int:
        """The number of the newest piece, from 1; 0 without one."""
        return self.num_forgotten + len(self.pieces)

    def piece(self, number: int) -> Piece:
        """Return a piece by its number, from 1."""
        return self.pieces[number - 1 - self.num_forgotten]

    def take_files(self, place: str | PathLike[str]) -> bool:
        """Read all complete lines of a stream's files; return whether the last one is complete."""
        is_complete = True
        for file in stream_files(place):
            for line, is_complete in lines_of(file):
                if is_complete:
                    self.take(line)
        return is_complete

    def take(self, line: bytes) -> None:
        """Read one line."""
        self._limits.refuse_late()
        self._limits.refuse_line(line)
        self.take_document(parsed(line))

    def take_document(self, document: Any) -> None:
        """Read the content of one line."""
        if not isinstance(document, dict):
            raise TraceError(f"{self._limits.path} has a line that is not a message: download the file again")
        if self.header is None or "format" in document:
            self._take_header(header_of(document, str(self._limits.path)))
            return
        try:
            self._take_message(document, self.header)
        except TraceError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            number = str(document.get("n"))[:20]
            raise TraceError(
                f"{self._limits.path} is inconsistent at message {number} ({error}): download it again"
            ) from None

    def _take_header(self, header: StreamHeader) -> None:
        known = self.header
        if known is not None and known.stream != header.stream:
            raise TraceError(
                f"{self._limits.path} continues with a different stream: attach one engine's files at a time"
            )
        self.header = header

    def _take_message(self, message: dict[str, Any], header: StreamHeader) -> None:
        number, at = INT(message["n"]), SECONDS(message["t"])
        if number > self._next and self.pieces:
            self.gap = f"messages {self._next} to {number - 1} of the stream are missing"
        elif number < self._next:
            raise ValueError(f"message {number} is repeated")
        self._next = number + 1
        for key, name in FACTS(message.get("names", {})).items():
            self.names[int(key)] = TEXT(name)
        if "k" in message:
            self._take_keyframe(FACTS(message["k"]), message.get("lost"))
        elif "e" in message and self.gap is None:
            rows = [header.renumbered(row) for row in message["e"]]
            self._piece.add(rows, at, message.get("inputs", ()))
            if message.get("idle") is True:
                self._piece.idle_at = self._piece.timeline.end
        elif "end" in message:
            self.end = TEXT(message["end"])
            if "lost" in message:
                self.gap = self._lost(message["lost"])

    @property
    def _piece(self) -> Piece:
        if not self.pieces:
            raise ValueError("events come before the first keyframe")
        return self.pieces[-1]

    def _take_keyframe(self, document: dict[str, Any], lost: Any) -> None:
        self._limits.refuse_pool(len(document["ref_counts"]))
        state = checked_fold(document)
        gap = self._lost(lost) if lost is not None else self.gap
        self.gap = None
        if not self.pieces:
            self._begin(document, state, _late(state) if gap is None else gap, None)
        elif gap is not None:
            loss = None if lost is None else _loss(lost)
            why, num_events = (gap, 0) if loss is None else (loss.why, loss.num_events)
            self._begin(document, state, gap, self._gap(state, why, num_events or None))
        else:
            self._check(document, state)

    def _lost(self, lost: Any) -> str:
        """Return the tap's reason for missing rows, with their number as far as known."""
        loss = _loss(lost)
        if self.pieces and self.gap is None:
            self.pieces[-1].loss = loss
        num_steps = INT(lost["num_steps"])
        known = [f"{loss.num_events:,} events were dropped"] if loss.num_events else []
        known += [f"{num_steps:,} steps were not observed"] if num_steps else []
        return "; ".join((loss.why, *known))

    def _check(self, document: dict[str, Any], state: Fold) -> None:
        piece = self._piece
        found = contradictions(piece.fold, state)
        if not found:
            piece.num_keyframes += 1
            return
        piece.contradict(found)
        self._begin(document, state, f"the engine's own state contradicted the earlier events: {found[0]}", None)

    def _gap(self, state: Fold, why: str, num_events: int | None) -> Gap:
        """Return the gap between the newest piece and a state."""
        return Gap(self._piece.fold.step + 1, state.step, num_events, readable(why, MAX_WHY))

    def _begin(self, document: dict[str, Any], state: Fold, gap: str, gap_before: Gap | None) -> None:
        piece = self._new_piece(state, gap, gap_before)
        piece.start = late_start_of(document)
        self.pieces.append(piece)

    def _new_piece(self, state: Fold, gap: str, gap_before: Gap | None) -> Piece:
        if self.pieces:
            self.pieces[-1].timeline.gap_after = gap_before
        timeline = Timeline(self._max_events)
        return Piece(state, gap, timeline, gap_before=gap_before, inner_states=self._inner_states)

    @property
    def _inner_states(self) -> InnerStates | None:
        return None if self.header is None else self.header.inner_states


def _loss(lost: Any) -> Loss:
    request = lost.get("request")
    return Loss(
        TEXT(lost["why"]), None if request is None else INT(request), INT(lost["num_events"]), TEXT(lost.get("by", ""))
    )


def _late(state: Fold) -> str:
    return "vLLM had run before, so the content of its free cached blocks is unknown" if state.step else ""


MAX_PIECES = 8
"""Most pieces kept, because a slow viewer gets a new one every second."""

MAX_FINISHED = 1000
"""Most finished requests kept in the state."""


class LiveReader(StreamReader):
    """A StreamReader whose newest piece is always in the same timeline; hooks get its events.

    max_finished: number of finished requests that are kept; None: all.
    """

    def __init__(
        self, place: str, timeline: Timeline, hooks: Hooks, max_bytes: int, max_finished: int | None = MAX_FINISHED
    ) -> None:
        super().__init__(Limits(place, max_bytes, MAX_ALLOWED_SECONDS / 10), timeline.max_events)
        self.timeline, self.hooks, self._max_finished = timeline, hooks, max_finished

    def go_on_in(self, timeline: Timeline) -> None:
        """Record in another timeline from now on, which ends at the same state."""
        self.timeline = self.pieces[-1].timeline = timeline

    def take(self, line: bytes) -> None:
        """Read one line."""
        super().take(line)
        known = self.pieces[-1].fold.requests if self.pieces else {}
        most = 2 * len(known) + (self._max_finished or MAX_FINISHED)
        if not (self.pieces and self.pieces[-1].has_inputs) and len(self.names) > most:
            self.names = {number: name for number, name in self.names.items() if number in known}

    def _new_piece(self, state: Fold, gap: str, gap_before: Gap | None) -> Piece:
        if self.pieces:  # keep the recording so far beside the timeline, which starts over
            self.pieces[-1].timeline = self.timeline.until(self.timeline.end)
            self.pieces[-1].timeline.gap_after = gap_before
        while len(self.pieces) >= MAX_PIECES:
            self.pieces.pop(0)
            self.num_forgotten += 1
        kept = self._max_finished
        return Piece(state, gap, self.timeline, self.hooks, kept, gap_before, self._inner_states)
