"""Reads the lines of a running engine's stream into one recording that grows, and starts over at each gap."""

from __future__ import annotations

from labengine.record.files.file_access import MAX_ALLOWED_SECONDS, Limits
from labengine.record.fold import Fold
from labengine.record.gap import Gap
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline
from labengine.vllm.stream.pieces import Piece
from labengine.vllm.stream.reader import StreamReader

MAX_PIECES = 8
"""Pieces that are kept: a viewer that is too slow gets a new one every second."""

MAX_FINISHED = 1000
"""Finished requests that are kept in the state."""


class LiveReader(StreamReader):
    """A StreamReader whose newest piece is always in the same timeline; hooks get its events."""

    def __init__(self, place: str, max_events: int, max_bytes: int) -> None:
        super().__init__(Limits(place, max_bytes, MAX_ALLOWED_SECONDS / 10), max_events)
        self.timeline = Timeline(max_events)
        self.hooks = Hooks()

    def take(self, line: bytes) -> None:
        """Read one line."""
        super().take(line)
        known = self.pieces[-1].fold.requests if self.pieces else {}
        if not (self.pieces and self.pieces[-1].has_inputs) and len(self.names) > 2 * len(known) + MAX_FINISHED:
            self.names = {number: name for number, name in self.names.items() if number in known}

    def _new_piece(self, state: Fold, gap: str, gap_before: Gap | None) -> Piece:
        if self.pieces:  # what was recorded until now is kept beside the timeline, which starts over
            self.pieces[-1].timeline = self.timeline.until(self.timeline.end)
            self.pieces[-1].timeline.gap_after = gap_before
        while len(self.pieces) >= MAX_PIECES:
            self.pieces.pop(0)
            self.num_forgotten += 1
        return Piece(state, gap, self.timeline, self.hooks, MAX_FINISHED, gap_before, self._checkpoint_alignment)
