"""The searches that are under way, by their beams. Every change goes through the journal."""

from __future__ import annotations

from collections.abc import Iterator

from labengine.core.beams import BeamSearch, Likeliest
from labengine.core.journal import Journal
from labengine.core.request import Request


class BeamSearches:
    """The searches, and the beams that wait for the others of their search without blocks and in no queue."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._of: dict[int, BeamSearch] = {}
        """By the first beam's id, in the order in which the searches began."""
        self._parked: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self._of)

    def due(self) -> Iterator[BeamSearch]:
        """Return the searches whose beams are all computed."""
        return iter([search for search in self._of.values() if search.is_due])

    def of(self, request: Request) -> BeamSearch | None:
        """Return the search of a beam; None before it has begun, and for other requests."""
        return next((search for search in self._of.values() if request.request_id in search.beam_ids), None)

    def holds(self, request: Request) -> bool:
        """Return True for a beam that is computed, and waits for the others of its search."""
        return any(request.request_id in search.likeliest for search in self._of.values())

    def note(self, search: BeamSearch, request_id: int, likeliest: Likeliest) -> None:
        """Keep what may follow a beam, until its search decides."""
        self.put(search.noted(request_id, likeliest))

    def put(self, search: BeamSearch) -> None:
        """Keep a search in place of what it was before."""
        self._set("_of", {**self._of, search.beam_ids[0]: search})

    def end(self, search: BeamSearch) -> None:
        """Forget a search."""
        self._set("_of", {first: one for first, one in self._of.items() if first != search.beam_ids[0]})

    def park(self, request: Request) -> None:
        """Have a beam that lost its blocks wait for the decision in no queue: it is computed already."""
        self._set("_parked", self._parked | {request.request_id})

    def unpark(self, request: Request) -> bool:
        """Return whether a beam was parked; it is no more."""
        if request.request_id not in self._parked:
            return False
        self._set("_parked", self._parked - {request.request_id})
        return True

    def _set(self, name: str, value: object) -> None:
        self._journal.record((setattr, self, name, getattr(self, name)))
        setattr(self, name, value)
