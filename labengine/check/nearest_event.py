"""The event to name for a violation whose first event is unknown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from labengine.check.first_event import blocks_named_by
from labengine.check.stream import Stream
from labengine.violation import Violation

_Thing = tuple[str, int]
"""("block" or "request", its id)."""


class NearestEvents:
    """For many violations: the cause if it is known, else the newest event about the same block or request."""

    def __init__(self, known: Iterable[Violation], stream: Stream | None) -> None:
        """known: the violations so far; those of the rule `said` are causes."""
        causes = [violation for violation in known if violation.rule == "said"]
        self._causes = [cause.first_event for cause in causes]
        self._first_cause: dict[_Thing, int] = {}
        for place, cause in enumerate(causes):
            for thing in _things(cause.block_ids, cause.request_ids):
                self._first_cause.setdefault(thing, place)
        self._newest: dict[_Thing, int] = {}
        for numbered in () if stream is None else stream.newest_events():
            request_id = getattr(numbered.event, "request_id", None)
            for thing in _things(blocks_named_by(numbered.event), () if request_id is None else (request_id,)):
                self._newest[thing] = numbered.number
        self._last = None if stream is None else stream.last_number

    def about(self, violation: Violation) -> int | None:
        """Return the number of the event; None without a recording."""
        things = [*_things(violation.block_ids, violation.request_ids)]
        causes = [self._first_cause[thing] for thing in things if thing in self._first_cause]
        if causes:
            return self._causes[min(causes)]
        return max((self._newest[thing] for thing in things if thing in self._newest), default=self._last)


def _things(block_ids: Iterable[int], request_ids: Iterable[int]) -> Iterator[_Thing]:
    yield from (("block", block_id) for block_id in block_ids)
    yield from (("request", request_id) for request_id in request_ids)
