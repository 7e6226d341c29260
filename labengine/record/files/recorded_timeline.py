"""A saved recording with Timeline's interface: events are decoded on demand."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import NoReturn, TypeVar, cast

from labengine import events as ev
from labengine.record.files.codec import KINDS, Kind, Row, event_of, renumbering, rows
from labengine.record.files.keyframe import fold_of
from labengine.record.files.parsing import TraceError, parsed
from labengine.record.files.segments import EVENTS_PER_SEGMENT, NO_KEYFRAME, Segment, move
from labengine.record.fold import Fold
from labengine.record.timeline import Timeline
from labengine.system.garbage_collection import garbage_collection_paused

E = TypeVar("E", bound=ev.Event)

CACHED_SEGMENTS = 64
CACHED_STATES = 8


class RecordedTimeline(Timeline):
    """A finished recording: offers everything that Timeline does, except recording.

    segments: in order, each beginning where the one before ends. last_keyframe: the state at the end, as JSON.
    cache_sizes: numbers of segments and of states that are kept decoded.
    An inconsistency raises TraceError when first read. Any thread may read.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        last_keyframe: bytes,
        kinds: Sequence[Kind],
        seconds: dict[int, float],
        cache_sizes: tuple[int, int] = (CACHED_SEGMENTS, CACHED_STATES),
    ) -> None:
        super().__init__(max_events=segments[-1].end - segments[0].start)
        self.num_dropped, self.step_seconds, self.generation = segments[0].start, seconds, 1
        self.segments, self.last_keyframe = segments, last_keyframe
        self._renumbered, self._has_our_kinds = renumbering(kinds), kinds == KINDS
        self._starts = [segment.start for segment in segments]
        num_segments, num_states = cache_sizes
        self.rows_of = lru_cache(num_segments)(self._read_rows)
        self._events_of = lru_cache(num_segments)(self._read_events)
        self._state_before = lru_cache(num_states)(self._read_state)

    def record(self, event: ev.Event) -> NoReturn:
        """Raise RuntimeError: the recording has ended."""
        raise RuntimeError("a saved recording cannot grow: record into a Timeline")

    @property
    def end(self) -> int:
        """The newest moment."""
        return self.segments[-1].end

    def events(self, start: int | None = None, stop: int | None = None) -> Sequence[ev.Event]:
        """Return the events between two moments (by default all that were saved), decoded on demand."""
        pieces = (self._events_of(i)[low:high] for i, low, high in self._pieces(start, stop))
        return list(chain.from_iterable(pieces))

    def corrections(self, start: int, stop: int) -> list[tuple[int, Fold]]:
        """Return (moment, state) of the corrections from a moment to another one: only these end a segment early."""
        ends = [one.end for one in self.segments[:-1] if one.end - one.start < EVENTS_PER_SEGMENT]
        return [(moment, self.state(moment)) for moment in ends if start <= moment <= stop]

    def rows(self, start: int | None = None, stop: int | None = None) -> list[Row]:
        """Return the events between two moments as JSON rows, numbered by codec.KINDS."""
        pieces = (self.rows_of(i)[low:high] for i, low, high in self._pieces(start, stop))
        return list(chain.from_iterable(pieces))

    def kept(self) -> tuple[int, Fold, Sequence[ev.Event]]:
        """Return the oldest moment, the state there, and the events since."""
        return self.num_dropped, self.state(self.num_dropped), self.events()

    def of_kind(
        self, kind: type[E] | tuple[type[E], ...], start: int | None = None, stop: int | None = None
    ) -> list[E]:
        """Return the events of one or several kinds between two moments; the others are not decoded."""
        numbers = {i for i, known in enumerate(ev.EVENT_KINDS) if issubclass(known, kind)}
        pieces = (piece for piece in self._pieces(start, stop) if self._may_hold(piece[0], numbers))
        found = (row for i, low, high in pieces for row in self.rows_of(i)[low:high] if row[0] in numbers)
        with garbage_collection_paused():
            return cast(list[E], list(map(event_of, found)))

    def step_moments(self, step: int) -> tuple[int, int]:
        """Return the moments before and after the last run of `step`. Raises KeyError if it is not recorded."""
        for i in reversed(range(len(self.segments))):
            segment = self.segments[i]
            if segment.first_step <= step <= segment.last_step:
                events = self._events_of(i)
                for at in reversed(range(len(events))):
                    if events[at] == ev.StepStarted(step):
                        return segment.start + at, segment.start + _end_of_step(events, at)
        raise KeyError(f"step {step} is not in the recording (events {self.num_dropped} to {self.end})")

    def state(self, moment: int | None = None) -> Fold:
        """Return the state at a moment (the newest by default), as a copy to keep.

        Raises IndexError for a dropped moment.
        """
        if moment is None or moment == self.end:
            return fold_of(parsed(self.last_keyframe))
        if not self.num_dropped <= moment < self.end:
            raise IndexError(f"no moment {moment}: the recording spans {self.num_dropped} to {self.end}")
        i = bisect_right(self._starts, moment) - 1
        state = self._state_before(i).copy()
        self._move(state, i, num_events=moment - self._starts[i])
        return state

    def _pieces(self, start: int | None, stop: int | None) -> Iterator[tuple[int, int, int]]:
        """Yield (segment, from, to) for all segments between two moments."""
        low = self.num_dropped if start is None else max(start, self.num_dropped)
        high = self.end if stop is None else min(stop, self.end)
        for i in range(max(0, bisect_right(self._starts, low) - 1), len(self.segments)):
            segment = self.segments[i]
            if segment.start >= high:
                return
            yield i, max(low - segment.start, 0), high - segment.start

    def _may_hold(self, i: int, numbers: set[int]) -> bool:
        """Return whether a segment's text may contain rows of these kinds. True for any text with blanks."""
        text = self.segments[i].rows
        if not self._has_our_kinds or any(blank in text for blank in (b" ", b"\t", b"\r")):
            return True
        return any(b"[%d," % number in text or b"[%d]" % number in text for number in numbers)

    @garbage_collection_paused()
    def _read_rows(self, i: int) -> list[Row]:
        segment, read = self.segments[i], parsed(self.segments[i].rows)
        if not isinstance(read, list) or len(read) != segment.end - segment.start:
            raise TraceError(f"events {segment.start} to {segment.end} of the trace are incomplete: download it again")
        try:
            return read if self._has_our_kinds else list(map(self._renumbered, read))
        except (LookupError, TypeError, ValueError) as error:
            where = f"events {segment.start} to {segment.end}"
            raise TraceError(f"{where} of the trace are damaged ({error}): download it again") from None

    @garbage_collection_paused()
    def _read_events(self, i: int) -> list[ev.Event]:
        return list(map(event_of, self.rows_of(i)))

    @garbage_collection_paused()
    def _read_state(self, i: int) -> Fold:
        """Return the state before segment i, computed from the nearest keyframe before it."""
        nearest = next((j for j in range(i, 0, -1) if self.segments[j].keyframe != NO_KEYFRAME), 0)
        state = fold_of(parsed(self.segments[nearest].keyframe))
        for j in range(nearest, i):
            self._move(state, j)
        return state

    def _move(self, state: Fold, i: int, num_events: int | None = None) -> None:
        try:
            move(state, self._events_of(i)[:num_events])
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            if isinstance(error, TraceError):
                raise
            raise TraceError(
                f"the trace contradicts itself after event {self._starts[i]}: download it again"
            ) from error


def rows_between(timeline: Timeline, start: int | None = None, stop: int | None = None) -> list[Row]:
    """Return the rows of a timeline's events, ready for `dumps`. A saved timeline's events are not decoded for it."""
    if isinstance(timeline, RecordedTimeline):
        return timeline.rows(start, stop)
    return rows(timeline.events(start, stop))


def _end_of_step(events: Sequence[ev.Event], start: int) -> int:
    for at in range(start, len(events)):
        if isinstance(events[at], (ev.StepEnded, ev.StepRolledBack)):
            return at + 1
    return len(events)
