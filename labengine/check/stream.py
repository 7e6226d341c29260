"""The stream of one engine's events, followed step by step, and held against the core it tells of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from labengine import events as ev
from labengine.check.blame import Blamed, Told, blame, blame_journal, blame_nobody, blame_order
from labengine.check.said import Contradiction, all_contradictions, contradictions
from labengine.core.block import Block
from labengine.core.block_pool import BlockPool
from labengine.core.journal import Journal
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.fold import FINISHED, Fold

CREDIT_PER_STEP = 1024
"""Facts that a step may compare on account of the whole: a small pool is compared whole in every step."""

MAX_BLAMED = 50
"""Contradictions that one comparison reports: where everything is wrong, the first ones say so."""


class Stream:
    """What the events say, as a fold that stands at the start of the open step, while the step's own events wait.

    `settle` applies them when the step is over, `take_back` drops them when it was rolled back. Both then compare the
    fold with the core: what the step has touched, and from time to time all there is.
    """

    def __init__(
        self,
        state: Callable[[], Fold],
        number: int,
        pool: BlockPool,
        requests: Mapping[int, Request],
        parts: Parts,
        journal: Journal,
    ) -> None:
        """state: makes a fold of what the core holds now; number: of the next event, in the recording."""
        self._state = state
        self._fold = fold = state()
        self._is_at_start = False
        """True while the fold stands at the start of the open step; False also where an interrupt has left it torn."""
        self._pool, self._requests, self._parts, self._journal = pool, requests, parts, journal
        self._next_number = number
        self._waiting: list[Told] = []
        self._recent: list[Told] = []
        """The events of the newest comparison: whoever contradicts the core is among them."""
        self._open = {i for i, request in fold.requests.items() if request.status != FINISHED}
        self._credit = 0

    def note(self, event: ev.Event) -> None:
        """The listener: to be subscribed to events of every kind."""
        self._waiting.append(Told(self._next_number, event, len(self._journal)))
        self._next_number += 1

    @property
    def last_number(self) -> int:
        """The number of the newest event."""
        return self._next_number - 1

    def newest(self, is_wanted: Callable[[ev.Event], bool]) -> int | None:
        """The number of the newest event of this step, or of the one before, that is wanted; None for none."""
        return next((one.number for one in reversed(self.newest_events()) if is_wanted(one.event)), None)

    def newest_events(self) -> list[Told]:
        """The events of this step and of the one before, oldest first."""
        return [*self._recent, *self._waiting]

    def under_way(self) -> Iterator[ev.Event]:
        """The events of the open step so far."""
        return (told.event for told in self._waiting)

    # -- comparing -----------------------------------------------------------------------------------------------------

    def begin(self) -> list[Blamed]:
        """A step has started: what was said between the steps is compared before anything else changes."""
        blamed = self.settle()
        self._is_at_start = True
        return blamed

    def settle(self, *, whole: bool = False) -> list[Blamed]:
        """Apply the events that wait, and compare. Between steps, and at a step's end."""
        self._is_at_start = False
        impossible = [*self._apply_waiting(self._fold)]
        changes = self._fold.take_changes()
        self._follow(changes.requests)
        found = contradictions(self._fold, self._pool, self._requests, changes)
        if whole or self._is_time_for_all():
            found += all_contradictions(self._fold, self._pool, self._requests, self._open)
        return [*impossible, *_sorted(map(self._blame, _distinct(found)))]

    def look_ahead(self) -> list[Blamed]:
        """Compare all there is with what the open step has said so far, and leave the step open.

        Also for a step that has failed: what has changed since its newest event was not told yet, and is left out.
        """
        ahead = self._fold.copy()
        impossible = [*self._apply_waiting(ahead)]
        self._waiting = self._recent
        found = all_contradictions(ahead, self._pool, self._requests, ahead.requests)
        untold = Untold.of(self._journal[self._num_told_changes() :])
        told = [one for one in _distinct(found) if not untold.concerns(one, self._requests)]
        return [*impossible, *_sorted(filter(None, (blame(one, self._recent, self._parts) for one in told)))]

    def take_back(self) -> list[Blamed]:
        """The open step was rolled back, as the newest event says: the core has to be again what the fold still is."""
        *self._recent, rolled_back = self._waiting
        self._waiting = []
        if not self._is_at_start:
            self._fold = self._state()
            return []
        found = all_contradictions(self._fold, self._pool, self._requests, self._open)
        number, recent, parts = rolled_back.number, self._recent, self._parts
        return [blame_journal(one, recent, number, parts) for one in _distinct(found)]

    # -- following -----------------------------------------------------------------------------------------------------

    def _apply_waiting(self, fold: Fold) -> Iterator[Blamed]:
        self._recent, self._waiting = self._waiting, []
        for told in self._recent:
            before = fold.num_impossible
            fold.apply(told.event)
            if fold.num_impossible > before:
                yield blame_order(told, self._parts)

    def _follow(self, request_ids: Iterable[int]) -> None:
        for request_id in request_ids:
            request = self._fold.requests.get(request_id)
            if request is None or request.status == FINISHED:
                self._open.discard(request_id)
            else:
                self._open.add(request_id)

    def _is_time_for_all(self) -> bool:
        self._credit += CREDIT_PER_STEP
        cost = len(self._pool.blocks) + len(self._pool.prefix_map)
        cost += sum(request.num_tokens for i in self._open if (request := self._requests.get(i)) is not None)
        if self._credit < cost:
            return False
        self._credit = 0
        return True

    def _blame(self, one: Contradiction) -> Blamed:
        number = self._recent[0].number if self._recent else self.last_number
        return blame(one, self._recent, self._parts) or blame_nobody(one, number, self._parts)

    def _num_told_changes(self) -> int:
        told = (one for one in reversed(self._recent) if type(one.event) is not ev.StepFailed)
        return next((one.num_changes for one in told), 0)


class Untold(NamedTuple):
    """What has changed since the newest event, as far as the journal's entries name it."""

    block_ids: set[int]
    request_ids: set[int]
    lists: set[int]
    """Of block tables, by identity."""

    @classmethod
    def of(cls, entries: Iterable[tuple[object, ...]]) -> Untold:
        """What these entries of the journal would take back."""
        untold = cls(set(), set(), set())
        for inverse, *arguments in entries:
            for value in (getattr(inverse, "__self__", None), *arguments):
                untold._add(value)
        return untold

    def _add(self, value: object) -> None:
        if isinstance(value, Block):
            self.block_ids.add(value.block_id)
        elif isinstance(value, Request):
            self.request_ids.add(value.request_id)
        elif isinstance(value, (list, tuple)):
            self.lists.add(id(value))
            self.block_ids.update(one for one in value if isinstance(one, int))

    def concerns(self, one: Contradiction, requests: Mapping[int, Request]) -> bool:
        """True if the fact has changed since."""
        request = None if one.request_id is None else requests.get(one.request_id)
        tables = () if request is None else map(id, request.block_tables)
        is_named = one.block_id in self.block_ids or one.request_id in self.request_ids
        return is_named or not self.lists.isdisjoint(tables)


def _distinct(found: Iterable[Contradiction]) -> list[Contradiction]:
    return [*dict.fromkeys(found)][:MAX_BLAMED]


def _sorted(blamed: Iterable[Blamed]) -> list[Blamed]:
    """The earliest first: what comes after it may only follow from it."""
    return sorted(blamed, key=lambda one: one.first_event)
