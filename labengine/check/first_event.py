"""The cause of a violation: the first event after which a rule was broken and stayed broken until detected."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence

from labengine import events as ev
from labengine.check.blame import NumberedEvent
from labengine.check.differences import Misread
from labengine.check.invariants import judge_blocks, judge_keys, judge_recorded_tree, judge_requests
from labengine.check.past_state import PastState
from labengine.check.state import FoldState
from labengine.core.request import Request
from labengine.record.fold import surviving
from labengine.record.timeline import Timeline
from labengine.record.violation import Violation

_UNKNOWN = -1
"""First event of a rule that was broken before the recording begins."""


class Suspicion(ABC):
    """A violation as a predicate that can be evaluated at any past moment."""

    violation: Violation

    @abstractmethod
    def was_broken(self, past: PastState, event: ev.Event | None) -> bool | None:
        """Return whether the rule was broken after this event (None: before the first).

        None when the recording cannot tell.
        """

    @abstractmethod
    def concerns(self, event: ev.Event, blocks: set[int]) -> bool:
        """Return False for an event that cannot change the answer. blocks: the ids that it names."""

    def _names_request(self, event: ev.Event) -> bool:
        return getattr(event, "request_id", None) in self.violation.request_ids


class BrokenState(Suspicion):
    """A broken invariant of the state."""

    def __init__(self, violation: Violation) -> None:
        self.violation = violation

    def was_broken(self, past: PastState, event: ev.Event | None) -> bool:
        """Judge the same blocks, or the same requests, again."""
        state, seen = FoldState(past.fold), self.violation
        if seen.rule in ("tree", "locks"):
            return any(found.subjects & seen.subjects for found in judge_recorded_tree(past.fold))
        if not seen.block_ids:
            known = [request_id for request_id in seen.request_ids if request_id in state.requests]
            return any(found.rule == seen.rule for found in judge_requests(state, known))
        if not past.fold.ref_counts:  # before the engine's start
            return False
        found = [*judge_blocks(state, seen.block_ids, merges=seen.rule == "duplicate")]
        if seen.rule == "prefix_map":
            found += judge_keys(state, past.fold.prefix_map)
        if seen.rule == "held":
            found += judge_requests(state, (i for i in seen.request_ids if i in state.requests))
        return any(other.rule == seen.rule and set(other.block_ids) >= set(seen.block_ids) for other in found)

    def concerns(self, event: ev.Event, blocks: set[int]) -> bool:
        """Return True for events that name the blocks and for any request's end; without blocks, for its requests."""
        if not self.violation.block_ids:
            return self._names_request(event)
        has_ended = isinstance(event, (ev.RequestFinished, ev.RequestPreempted))
        return has_ended or not blocks.isdisjoint(self.violation.block_ids)


class WrongWrite(Suspicion):
    """A write to a wrong place: broken from the write on."""

    def __init__(self, violation: Violation) -> None:
        self.violation = violation

    def was_broken(self, past: PastState, event: ev.Event | None) -> bool:
        """Return True right after the event of the write."""
        return event is not None and self.was_broken_by(event)

    def was_broken_by(self, event: ev.Event) -> bool:
        """Return whether this event is the write."""
        requests, blocks = self.violation.request_ids, set(self.violation.block_ids)
        match event:
            case ev.SlotsWritten(request_id, _, _, runs):
                return request_id in requests and bool(blocks.intersection(block_id for block_id, _, _ in runs))
            case ev.StateAdvanced():
                return event.request_id in requests and event.block_id in blocks
            case ev.BlocksLoaded(request_id, transfers) | ev.RequestReceived(request_id, transfers):
                return request_id in requests and bool(blocks.intersection(block_id for _, _, block_id, _ in transfers))
        return False

    def concerns(self, event: ev.Event, blocks: set[int]) -> bool:
        """Return True for the write, and for a step's start, which clears earlier writes."""
        return isinstance(event, ev.StepStarted) or self.was_broken_by(event)


class WrongRead(Suspicion):
    """A misread: broken while the request relies on a position for which its table leads to other content."""

    def __init__(self, misread: Misread) -> None:
        self.violation = misread.violation()
        self._misread = misread

    def was_broken(self, past: PastState, event: ev.Event | None) -> bool | None:
        """Look up the position as the kernel would have done at that moment."""
        m = self._misread
        request = past.fold.requests.get(m.request_id)
        if request is None or not past.counts_on(m.request_id, m.group, m.position):
            return False
        table = request.block_tables[m.group]
        if m.index >= len(table):
            return m.entry is None
        if table[m.index] == past.fold.null_block:
            return True
        holds_own = past.holds_own(m.request_id, m.group, table[m.index], m.position)
        return None if holds_own is None else not holds_own

    def concerns(self, event: ev.Event, blocks: set[int]) -> bool:
        """Return True for the request's events and for any write: its KV may have been in another block before."""
        writes = (ev.SlotsWritten, ev.StateAdvanced, ev.BlocksLoaded, ev.RequestReceived)
        return isinstance(event, (*writes, ev.StepEnded, ev.StepRolledBack)) or self._names_request(event)


class Breach(Suspicion):
    """A rule broken by a single event, and from then on."""

    def __init__(self, violation: Violation, event: ev.Event) -> None:
        self.violation = violation
        self._event = event

    def was_broken(self, past: PastState, event: ev.Event | None) -> bool:
        """Return True right after the event."""
        return event is self._event

    def concerns(self, event: ev.Event, blocks: set[int]) -> bool:
        """Return True for the event alone."""
        return event is self._event


def first_events(
    timeline: Timeline, suspicions: Sequence[Suspicion], requests: Mapping[int, Request]
) -> list[int | None]:
    """Return the number of each suspicion's first event, from one walk over the recording.

    None if the recording begins too late or its events contradict each other.
    """
    start = max(timeline.num_dropped, timeline.corrected_at)
    events = timeline.events(start)
    past = PastState(timeline.state(start), requests, is_complete=start == 0)
    since: list[int | None] = [None if s.was_broken(past, None) is False else _UNKNOWN for s in suspicions]
    survivors = set(surviving(events))
    for position, event in enumerate(events):
        try:
            past.apply(event, survives=position in survivors)
            blocks = ev.blocks_of(event)
            answers = [s.was_broken(past, event) if s.concerns(event, blocks) else ... for s in suspicions]
        except (KeyError, IndexError):
            return [None] * len(suspicions)
        for i, answer in enumerate(answers):
            if answer is False:
                since[i] = None
            elif answer is None:
                since[i] = _UNKNOWN
            elif answer is True and since[i] is None:
                since[i] = start + position
    return [None if number == _UNKNOWN else number for number in since]


_Thing = tuple[str, int]
"""("block" or "request", its id)."""


class NearestEvents:
    """The probable cause of many violations: the known one, else the newest event about the same block or request."""

    def __init__(self, known: Iterable[Violation], recent: Iterable[NumberedEvent], newest: int | None) -> None:
        """known: the violations so far; those of the rule `said` are causes. recent: events, oldest first.

        newest: the newest event's number; None without a recording.
        """
        causes = [violation for violation in known if violation.rule == "said"]
        self._causes = [cause.first_event for cause in causes]
        self._first_cause: dict[_Thing, int] = {}
        for place, cause in enumerate(causes):
            for thing in _things(cause.block_ids, cause.request_ids):
                self._first_cause.setdefault(thing, place)
        self._newest: dict[_Thing, int] = {}
        self._loaded: dict[int, int] = {}
        """Per block: the newest load into it. No event shows what a tier has really delivered."""
        for numbered in recent:
            request_id = getattr(numbered.event, "request_id", None)
            for thing in _things(ev.blocks_of(numbered.event), () if request_id is None else (request_id,)):
                self._newest[thing] = numbered.number
            if isinstance(numbered.event, ev.BlocksLoaded | ev.RequestReceived):
                self._loaded.update(dict.fromkeys(ev.blocks_of(numbered.event), numbered.number))
        self._last = newest

    def about(self, violation: Violation) -> int | None:
        """Return the number of the event; None without a recording."""
        things = [*_things(violation.block_ids, violation.request_ids)]
        causes = [self._first_cause[thing] for thing in things if thing in self._first_cause]
        if causes:
            return self._causes[min(causes)]
        if violation.rule == "read" and (loads := self._loaded.keys() & violation.block_ids):
            return max(self._loaded[block_id] for block_id in loads)
        return max((self._newest[thing] for thing in things if thing in self._newest), default=self._last)


def _things(block_ids: Iterable[int], request_ids: Iterable[int]) -> Iterator[_Thing]:
    yield from (("block", block_id) for block_id in block_ids)
    yield from (("request", request_id) for request_id in request_ids)
