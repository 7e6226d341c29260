"""The stream of one engine's events, folded step by step and compared with the core."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from labengine import events as ev
from labengine.check.blame import Blamed, NumberedEvent, Suspects, blame, blame_journal, blame_order, without_blame
from labengine.check.contradictions import Contradiction, all_contradictions, contradictions
from labengine.check.tree_facts import tree_contradictions
from labengine.core.block import Block
from labengine.core.block_pool import BlockPool
from labengine.core.journal import Journal
from labengine.core.radix.node import Node
from labengine.core.request import Request, RequestStatus
from labengine.record.fold import Fold
from labengine.record.fold_state import FINISHED

FACTS_PER_TIME = 256
"""Facts that complete comparisons may cost on average per opportunity, of which a step has two.

A small pool is compared completely each time, one of 4,096 blocks in every eighth step. A fact takes about 0.07 us: a
block with its place in the queue, an entry of the map, or TOKENS_PER_FACT tokens."""

TOKENS_PER_FACT = 16
FACTS_PER_NODE = 16

CHANGE_NOTHING = (ev.StepFailed, ev.DecisionDiffered)
"""Kinds that may be emitted at any point, even between a change and its event."""

MAX_BLAMED = 50
"""Most contradictions that one comparison reports: where everything is wrong, the first ones suffice."""


class Stream:
    """A fold of the events before the open step; the step's own events wait until it ends.

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
        """state: returns a fold of the core's present state. number: the next event's number in the recording."""
        self._state = state
        self._is_at_start = False
        """True while the fold is the state at the open step's start; False also after an interrupt left it torn."""
        self._pool, self._requests, self._suspects, self._journal = pool, requests, suspects, journal
        self._waiting = _Events(number, [])
        self._recent = _Events(number, [])
        """Events of the newest comparison: an event that contradicts the core is among them."""
        self._num_reported = 0
        """Length of the journal at the newest event that may report a change."""
        self._num_owed = 0
        """Facts of the newest complete comparison that are not yet paid for by the comparisons since."""
        self._start_from(state())

    def _start_from(self, fold: Fold) -> None:
        self._fold = fold
        self._open = {i for i, request in fold.requests.items() if request.status != FINISHED}
        self.running = {i for i, request in fold.requests.items() if request.status == RequestStatus.RUNNING}
        """Requests that were running when the open step began."""

    def note(self, event: ev.Event) -> None:
        """Record one event; to be subscribed to events of all kinds but CHANGE_NOTHING."""
        self._waiting.events.append(event)
        self._num_reported = len(self._journal)

    def note_remark(self, event: ev.StepFailed | ev.DecisionDiffered) -> None:
        """Record one event that reports no change; to be subscribed to CHANGE_NOTHING."""
        self._waiting.events.append(event)

    @property
    def last_number(self) -> int:
        """The number of the newest event."""
        return self._waiting.end - 1

    def newest(self, is_wanted: Callable[[ev.Event], bool]) -> int | None:
        """Return the number of the newest wanted event of this step or the one before; None for none."""
        return next((one.number for one in reversed(self.newest_events()) if is_wanted(one.event)), None)

    def newest_events(self) -> list[NumberedEvent]:
        """Return the events of this step and the one before, oldest first."""
        return [*self._recent.numbered(), *self._waiting.numbered()]

    def under_way(self) -> Sequence[ev.Event]:
        """Return the events of the open step so far, oldest first."""
        return self._waiting.events

    def numbered_under_way(self) -> Sequence[NumberedEvent]:
        """Return the events of the open step so far with their numbers."""
        return self._waiting.numbered()

    # -- comparing -----------------------------------------------------------------------------------------------------

    def begin(self) -> list[Blamed]:
        """Compare the events between two steps, before the new step changes anything."""
        blamed = self.settle()
        self._is_at_start = True
        return blamed

    def settle(self, *, compare_all: bool = False) -> list[Blamed]:
        """Apply the waiting events and compare. Called between steps, and at a step's end."""
        self._is_at_start = False
        impossible = self._apply_waiting(self._fold)
        changes = self._fold.take_changes()
        self._follow(changes.requests)
        found = contradictions(self._fold, self._pool, self._requests, changes)
        found += tree_contradictions(self._fold.tree, self._pool.tree, changes.nodes)
        if compare_all or self._is_time_for_all():
            found += self._compare_all(self._fold, self._open)
        return [*impossible, *self._blamed(found)]

    def look_ahead(self) -> list[Blamed]:
        """Compare everything with the open step's events so far, and leave the step open.

        In a failed step, changes after the newest event are left out, because no event reports them yet.
        """
        ahead = self._fold.copy()
        impossible = self._apply_waiting(ahead)
        self._waiting = self._recent
        recent = self._recent.numbered()
        found = self._compare_all(ahead, ahead.requests)
        unreported = Unreported.of(self._journal[self._num_reported :])
        reported = [one for one in _distinct(found) if not unreported.concerns(one, self._requests)]
        return [*impossible, *_sorted(filter(None, (blame(one, recent, self._suspects) for one in reported)))]

    def take_back(self) -> list[Blamed]:
        """Compare after a rollback, whose event is the newest: the core has to equal the fold again.

        An engine without a session may be interrupted before the event that begins its step; that step's start is not
        known.
        """
        *events, _ = self._waiting.events
        number, self._recent = self.last_number, self._waiting._replace(events=events)
        self._waiting = _Events(number + 1, [])
        is_at_start, self._is_at_start = self._is_at_start, False
        if not is_at_start:
            self._start_from(self._state())
            return []
        found = self._compare_all(self._fold, self._open)
        recent, suspects = self._recent.numbered(), self._suspects
        return [blame_journal(one, recent, number, suspects) for one in _distinct(found)]

    def _compare_all(self, fold: Fold, request_ids: Iterable[int]) -> list[Contradiction]:
        found = all_contradictions(fold, self._pool, self._requests, request_ids)
        return [*found, *tree_contradictions(fold.tree, self._pool.tree)]

    # -- following -----------------------------------------------------------------------------------------------------

    def _apply_waiting(self, fold: Fold) -> list[Blamed]:
        self._recent, self._waiting = self._waiting, _Events(self._waiting.end, [])
        impossible = fold.apply_all(self._recent.events)
        numbered = self._recent.numbered() if impossible else []
        return [blame_order(numbered[place], self._suspects) for place in impossible]

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
        self._num_owed -= FACTS_PER_TIME
        if self._num_owed > 0:
            return False
        num_tokens = sum(request.num_tokens for i in self._open if (request := self._requests.get(i)) is not None)
        self._num_owed = len(self._pool.blocks) + len(self._pool.prefix_map) + num_tokens // TOKENS_PER_FACT
        if (tree := self._pool.tree) is not None:
            self._num_owed += len(tree.node_of) + FACTS_PER_NODE * len(tree.nodes)
        return True

    def _blamed(self, found: Sequence[Contradiction]) -> list[Blamed]:
        if not found:
            return []
        recent, suspects = self._recent.numbered(), self._suspects
        return _sorted(
            blame(one, recent, suspects) or without_blame(one, self._since(one, recent), suspects)
            for one in _distinct(found)
        )

    def _since(self, one: Contradiction, recent: Sequence[NumberedEvent]) -> int:
        """Return the first event since the last comparison that names the request of an unreported change.

        The first of all events if none does, or if the fact is not about a request.
        """
        named = (n.number for n in recent if getattr(n.event, "request_id", None) == one.request_id is not None)
        return next(named, recent[0].number if recent else self.last_number)


class _Events(NamedTuple):
    """Consecutive events, and the first one's number in the recording."""

    first_number: int
    events: list[ev.Event]

    @property
    def end(self) -> int:
        """The number of the next event."""
        return self.first_number + len(self.events)

    def numbered(self) -> list[NumberedEvent]:
        """Return the events, each with its number."""
        return [*map(NumberedEvent, range(self.first_number, self.end), self.events)]


class Unreported(NamedTuple):
    """Changes since the newest event that the journal's entries name."""

    block_ids: set[int]
    request_ids: set[int]
    lists: set[int]
    """Block tables, by id() of the list."""
    node_ids: set[int]

    @classmethod
    def of(cls, entries: Iterable[tuple[object, ...]]) -> Unreported:
        """Return the changes that these journal entries would undo."""
        unreported = cls(set(), set(), set(), set())
        for inverse, *arguments in entries:
            for value in (getattr(inverse, "__self__", None), *arguments):
                unreported._add(value)
        return unreported

    def _add(self, value: object) -> None:
        if isinstance(value, Block):
            self.block_ids.add(value.block_id)
        elif isinstance(value, Request):
            self.request_ids.add(value.request_id)
        elif isinstance(value, Node):
            self.node_ids.add(value.node_id)
        elif isinstance(value, (list, tuple)):
            self.lists.add(id(value))
            self.block_ids.update(one for one in value if isinstance(one, int))
            for one in value:
                if isinstance(one, (Node, tuple)):
                    self._add(one)

    def concerns(self, one: Contradiction, requests: Mapping[int, Request]) -> bool:
        """Return True if the fact may have changed since the newest event."""
        request = None if one.request_id is None else requests.get(one.request_id)
        tables = () if request is None else map(id, request.block_tables)
        if one.node_id is not None:
            return one.node_id in self.node_ids
        is_named = one.block_id in self.block_ids or one.request_id in self.request_ids
        return is_named or not self.lists.isdisjoint(tables)


def _distinct(found: Iterable[Contradiction]) -> list[Contradiction]:
    return [*dict.fromkeys(found)][:MAX_BLAMED]


def _sorted(blamed: Iterable[Blamed]) -> list[Blamed]:
    """Sort by first event: later contradictions may be mere consequences of earlier ones."""
    return sorted(blamed, key=lambda one: one.first_event)
