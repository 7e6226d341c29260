"""Siblings: requests that continue another one's tokens, and wait until it has computed them."""

from __future__ import annotations

from collections.abc import Mapping

from labengine.core.journal import Journal
from labengine.core.request import Request


class Siblings:
    """Per leader its siblings, in the order in which they came. They are in no queue: the leader computes for them."""

    def __init__(self, journal: Journal) -> None:
        self._of: dict[int, tuple[Request, ...]] = {}
        self._journal = journal

    def __bool__(self) -> bool:
        return bool(self._of)

    def of(self, leader: Request) -> tuple[Request, ...]:
        """Return the siblings of a leader."""
        return self._of.get(leader.request_id, ())

    def join(self, sibling: Request, leader: Request) -> None:
        """Have a request wait for the leader's tokens."""
        self._set(leader.request_id, (*self.of(leader), sibling))

    def take(self, leader: Request) -> tuple[Request, ...]:
        """Return the leader's siblings; they wait no more."""
        siblings = self.of(leader)
        if siblings:
            self._set(leader.request_id, ())
        return siblings

    def leave(self, sibling: Request) -> bool:
        """Remove a request; return False if it waits for no leader."""
        for leader_id, siblings in self._of.items():
            if sibling in siblings:
                self._set(leader_id, tuple(one for one in siblings if one is not sibling))
                return True
        return False

    def leader_of(self, request: Request, requests: Mapping[int, Request]) -> Request:
        """Return the request for which this one waits, else the request itself."""
        for leader_id, siblings in self._of.items():
            if request in siblings:
                return requests[leader_id]
        return request

    def num_beside(self, requests: Mapping[int, Request]) -> int:
        """Return how many siblings wait for one of these requests."""
        return sum(len(siblings) for leader_id, siblings in self._of.items() if leader_id in requests)

    def _set(self, leader_id: int, siblings: tuple[Request, ...]) -> None:
        self._journal.record((self._restore, leader_id, self._of.get(leader_id, ())))
        self._restore(leader_id, siblings)

    def _restore(self, leader_id: int, siblings: tuple[Request, ...]) -> None:
        if siblings:
            self._of[leader_id] = siblings
        else:
            self._of.pop(leader_id, None)
