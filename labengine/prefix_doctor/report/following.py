"""Follows a running vLLM and adds its look-ups and evictions to sums, each of them once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from time import monotonic

from labengine import events as ev
from labengine.prefix_doctor.look_ups.examine import examine
from labengine.prefix_doctor.look_ups.recorded_engine import RecordedEngine, kept_events
from labengine.prefix_doctor.report.evictions import Evictions
from labengine.prefix_doctor.report.metric_sums import MetricSums
from labengine.record.fold_state import RequestFold
from labengine.record.timeline import Timeline
from labengine.session.saved.viewed_recording import HeldStill
from labengine.vllm.conformance.edition_run import salts_of
from labengine.vllm.conformance.settings import drops_last_block
from labengine.vllm.stream.pieces import Piece
from labengine.vllm.stream.reader import LiveReader

REST = 20
"""Examining takes at most one part in this many of the time, unless events would be dropped before they are judged."""

LAG = 2
"""Steps after which all of a step is known: an asynchronous scheduler books a step after it has planned the next."""


@dataclass(frozen=True)
class _Kept:
    """All kept events of a piece, for the verdicts on the look-ups of the steps after `after`, up to `last`."""

    recording: RecordedEngine
    after: float
    last: float


class Following:
    """Adds a stream to sums: evictions at once, and each look-up as soon as no later event can change its verdict.

    That is once its prompt, and those of the requests admitted before it, have been computed. The doctor then examines
    all the events that the reader keeps.
    """

    def __init__(self, reader: LiveReader, held_still: HeldStill, sums: MetricSums) -> None:
        self._reader, self._held_still, self._sums = reader, held_still, sums
        self._due = 0.0
        with held_still():
            self._begin(reader.newest)

    def follow(self, *, is_over: bool) -> None:
        """Add what is new. is_over: no more events will come."""
        with self._held_still():
            kept = list(self._new(is_over))
        began = monotonic()
        for one in kept:
            self._judge(one)
        if kept:
            self._due = monotonic() + (monotonic() - began) * (REST - 1)

    def _begin(self, number: int) -> None:
        """Go on to a piece."""
        self._number, timeline = number, self._reader.piece(number).timeline
        self._look_from_oldest(timeline)
        self._examined, self._judged = self._moment, float(self._step)
        self._open: list[tuple[int, int]] = []
        """(request, step) of each look-up that is not yet judged, in order."""

    def _look_from_oldest(self, timeline: Timeline) -> None:
        self._moment, first, _ = timeline.kept()
        self._evictions, self._step = Evictions(first), first.step

    def _new(self, is_over: bool) -> Iterator[_Kept]:
        """Add what needs no verdict; yield each piece with look-ups to judge."""
        while True:
            if self._number > self._reader.num_forgotten:
                is_last = self._number == self._reader.newest
                yield from self._take(self._reader.piece(self._number), is_over or not is_last)
            if self._number == self._reader.newest:
                return
            self._sums.num_gaps += 1
            self._begin(max(self._number, self._reader.num_forgotten) + 1)

    def _take(self, piece: Piece, is_over: bool) -> Iterator[_Kept]:
        timeline = piece.timeline
        if self._moment < timeline.num_dropped:
            self._look_from_oldest(timeline)
        for event in timeline.events(self._moment):
            self._note(event)
        self._moment = timeline.end
        is_urgent = timeline.end - self._examined > timeline.max_events // 2
        if is_over or is_urgent or monotonic() >= self._due:
            self._examined = timeline.end
            last = inf if is_over else self._last_final(piece)
            if any(step <= last for _, step in self._open):
                yield _Kept(_recording(piece, self._reader), self._judged, last)
                self._open = [(i, step) for i, step in self._open if step > last]
            self._judged = max(self._judged, last)

    def _note(self, event: ev.Event) -> None:
        match event:
            case ev.StepStarted(step):
                self._step = step
            case ev.PrefixHit(request_id):
                self._open.append((request_id, self._step))
            case _:
                if eviction := self._evictions.follow(event):
                    self._sums.evicted.add((eviction.by,), 1)

    def _last_final(self, piece: Piece) -> float:
        """Return the last step whose look-ups have a final verdict.

        A request that computes its prompt holds back those since its own look-up, while that one's events are kept.
        """
        look_ups, oldest = dict(self._open), _oldest_step(piece.timeline)
        began = (look_ups.get(i, 0) for i, one in piece.fold.requests.items() if _is_computing(one))
        return min([piece.fold.step - LAG, *(step - 1 for step in began if step >= oldest)])

    def _judge(self, kept: _Kept) -> None:
        salts = kept.recording.salts or {}
        self._sums.num_gaps += kept.recording.first.step > kept.after
        for one in examine(kept.recording).look_ups:
            if one.is_first and kept.after < one.step <= kept.last:
                self._sums.add(one, str(salts.get(one.request_id, "")))


def _is_computing(request: RequestFold) -> bool:
    return any(request.block_tables) and request.num_computed_tokens < len(request.token_ids) - 1


def _oldest_step(timeline: Timeline) -> int:
    """Return the oldest step kept of a timeline that has dropped events; 0 for a complete one."""
    kept = timeline.events(timeline.num_dropped, timeline.num_dropped + 1) if timeline.num_dropped else ()
    return next((event.step for event in kept if isinstance(event, ev.StepStarted)), 0)


def _recording(piece: Piece, reader: LiveReader) -> RecordedEngine:
    first, events, _ = kept_events(piece.timeline)
    salts = {number: keys[0][1] for number, keys in salts_of(piece).items()}
    drops = reader.header is not None and drops_last_block(reader.header)
    return RecordedEngine("", first, events, salts=salts, drops_last_block=drops)
