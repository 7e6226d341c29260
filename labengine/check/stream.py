"""The stream of one engine's events, folded step by step and compared with the core."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from labengine import events as ev
from labengine.check.blame import Blamed, NumberedEvent, Suspects, blame, blame_journal, blame_order, without_blame
from labengine.check.contradictions import Contradiction, all_contradictions, contradictions
from labengine.core.block import Block
from labengine.core.block_pool import BlockPool
from labengine.core.journal import Journal
from labengine.core.request import Request, RequestStatus
from labengine.record.fold import FINISHED, Fold

CREDIT_PER_STEP = 1024
"""Facts per step that a complete comparison may cost on average: a small pool is compared completely each step."""

_CHANGE_NOTHING = (ev.StepFailed, ev.DecisionDiffered)

MAX_BLAMED = 50
"""Contradictions that one comparison reports: where everything is wrong, the first ones suffice."""


class Stream:
    """A fold of the events at the start of the open step; the step's own events wait until it is over.

    `settle` applies them at the step's end, `take_back` drops them after a rollback. Both then compare the fold with
    the core: the step's changes each time, and everything from time to time.
    """

    def __init__(
        self,
        state: Callable[[], Fold],
        number: int,
        pool: BlockPool,
        requests: Mapping[int, Request],
        suspects: Suspects,
        journal: Journal,
    ) -> None:
        """state: makes a fold of the core's present state; number: the next event's number in the recording."""
        self._state = state
        self._fold = fold = state()
        self._is_at_start = False
        """True while the fold is the state at the open step's start; False also where an interrupt left it torn."""
        self._pool, self._requests, self._suspects, self._journal = pool, requests, suspects, journal
        self._next_number = number
        self._waiting: list[NumberedEvent] = []
        self._recent: list[NumberedEvent] = []
        """Events of the newest comparison: an event that contradicts the core is among them."""
        self._open = {i for i, request in fold.requests.items() if request.status != FINISHED}
        self.running = {i for i, request in fold.requests.items() if request.status == RequestStatus.RUNNING}
        """The requests that ran when the open step began."""
        self._credit = 0

    def note(self, event: ev.Event) -> None:
        """Record one event; to be subscribed to events of every kind."""
        self._waiting.append(NumberedEvent(self._next_number, event, len(self._journal)))
        self._next_number += 1

    @property
    def last_number(self) -> int:
        """The number of the newest event."""
        return self._next_number - 1

    def newest(self, is_wanted: Callable[[ev.Event], bool]) -> int | None:
        """Return the number of the newest wanted event of this step or of the one before; None for none."""
        return next((one.number for one in reversed(self.newest_events()) if is_wanted(one.event)), None)

    def newest_events(self) -> list[NumberedEvent]:
        """Return the events of this step and of the one before, oldest first."""
        return [*self._recent, *self._waiting]

    def under_way(self) -> Sequence[NumberedEvent]:
        """Return the events of the open step so far, oldest first."""
        return self._waiting

    # -- comparing -----------------------------------------------------------------------------------------------------

    def begin(self) -> list[Blamed]:
        """Compare the events between two steps, before the new step changes anything."""
        blamed = self.settle()
        self._is_at_start = True
        return blamed

    def settle(self, *, compare_all: bool = False) -> list[Blamed]:
        """Apply the waiting events and compare. Called between steps, and at a step's end."""
        self._is_at_start = False
        impossible = [*self._apply_waiting(self._fold)]
        changes = self._fold.take_changes()
        self._follow(changes.requests)
        found = contradictions(self._fold, self._pool, self._requests, changes)
        if compare_all or self._is_time_for_all():
            found += all_contradictions(self._fold, self._pool, self._requests, self._open)
        return [*impossible, *_sorted(map(self._blame, _distinct(found)))]

    def look_ahead(self) -> list[Blamed]:
        """Compare everything with the open step's events so far, and leave the step open.

        Also for a failed step: changes after its newest event are not reported yet, and are left out.
        """
        ahead = self._fold.copy()
        impossible = [*self._apply_waiting(ahead)]
        self._waiting = self._recent
        found = all_contradictions(ahead, self._pool, self._requests, ahead.requests)
        unreported = Unreported.of(self._journal[self._num_reported_changes() :])
        reported = [one for one in _distinct(found) if not unreported.concerns(one, self._requests)]
        return [*impossible, *_sorted(filter(None, (blame(one, self._recent, self._suspects) for one in reported)))]

    def take_back(self) -> list[Blamed]:
        """Compare after a rollback, whose event is the newest: the core has to equal the fold again."""
        *self._recent, rolled_back = self._waiting
        self._waiting = []
        if not self._is_at_start:
            self._fold = self._state()
            return []
        found = all_contradictions(self._fold, self._pool, self._requests, self._open)
        number, recent, suspects = rolled_back.number, self._recent, self._suspects
        return [blame_journal(one, recent, number, suspects) for one in _distinct(found)]

    # -- following -----------------------------------------------------------------------------------------------------

    def _apply_waiting(self, fold: Fold) -> Iterator[Blamed]:
        self._recent, self._waiting = self._waiting, []
        for numbered in self._recent:
            before = fold.num_impossible
            fold.apply(numbered.event)
            if fold.num_impossible > before:
                yield blame_order(numbered, self._suspects)

    def _follow(self, request_ids: Iterable[int]) -> None:
        for request_id in request_ids:
            request = self._fold.requests.get(request_id)
            if request is None or request.status == FINISHED:
                self._open.discard(request_id)
            else:
                self._open.add(request_id)
            if request is not None and request.status == RequestStatus.RUNNING:
                self.running.add(request_id)
            else:
                self.running.discard(request_id)

    def _is_time_for_all(self) -> bool:
        self._credit += CREDIT_PER_STEP
        cost = len(self._pool.blocks) + len(self._pool.prefix_map)
        cost += sum(request.num_tokens for i in self._open if (request := self._requests.get(i)) is not None)
        if self._credit < cost:
            return False
        self._credit = 0
        return True

    def _blame(self, one: Contradiction) -> Blamed:
        return blame(one, self._recent, self._suspects) or without_blame(one, self._since(one), self._suspects)

    def _since(self, one: Contradiction) -> int:
        """Return the first event since the last comparison that names the request of a change without an event.

        The first event of all if none does, or if the fact is about no request.
        """
        named = (n.number for n in self._recent if getattr(n.event, "request_id", None) == one.request_id is not None)
        return next(named, self._recent[0].number if self._recent else self.last_number)

    def _num_reported_changes(self) -> int:
        reported = (one for one in reversed(self._recent) if type(one.event) not in _CHANGE_NOTHING)
        return next((one.num_changes for one in reported), 0)


class Unreported(NamedTuple):
    """Changes since the newest event, as far as the journal's entries name them."""

    block_ids: set[int]
    request_ids: set[int]
    lists: set[int]
    """Block tables, by id() of the list."""

    @classmethod
    def of(cls, entries: Iterable[tuple[object, ...]]) -> Unreported:
        """Return the changes that these journal entries would undo."""
        unreported = cls(set(), set(), set())
        for inverse, *arguments in entries:
            for value in (getattr(inverse, "__self__", None), *arguments):
                unreported._add(value)
        return unreported

    def _add(self, value: object) -> None:
        if isinstance(value, Block):
            self.block_ids.add(value.block_id)
        elif isinstance(value, Request):
            self.request_ids.add(value.request_id)
        elif isinstance(value, (list, tuple)):
            self.lists.add(id(value))
            self.block_ids.update(one for one in value if isinstance(one, int))

    def concerns(self, one: Contradiction, requests: Mapping[int, Request]) -> bool:
        """Return True if the fact may have changed since the newest event."""
        request = None if one.request_id is None else requests.get(one.request_id)
        tables = () if request is None else map(id, request.block_tables)
        is_named = one.block_id in self.block_ids or one.request_id in self.request_ids
        return is_named or not self.lists.isdisjoint(tables)


def _distinct(found: Iterable[Contradiction]) -> list[Contradiction]:
    return [*dict.fromkeys(found)][:MAX_BLAMED]


def _sorted(blamed: Iterable[Blamed]) -> list[Blamed]:
    """Sort by first event: later contradictions may only follow from earlier ones."""
    return sorted(blamed, key=lambda one: one.first_event)
