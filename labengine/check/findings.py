"""Findings: the violations found in one engine, each kept once, with the event that caused it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from labengine.check.blame import NumberedEvent
from labengine.check.first_event import NearestEvents, Suspicion, first_events
from labengine.core.request import Request
from labengine.events import ViolationFound
from labengine.record.timeline import Timeline
from labengine.record.violation import Subject, Violation

MAX_VIOLATIONS = 1000
MAX_FIRST_EVENTS = 50
"""Violations traced through the recording: one walk takes about a second."""


class Findings:
    """Violations, oldest first.

    timeline: the recording to trace them through, if any. on_failure: called with an exception of the tracing, which
    must not disturb the engine.
    """

    def __init__(self, timeline: Timeline | None, on_failure: Callable[[Exception], object]) -> None:
        self.violations: list[Violation] = []
        self._timeline, self._on_failure = timeline, on_failure
        self._subjects: set[Subject] = set()

    @property
    def is_full(self) -> bool:
        """True if no more violations are kept."""
        return len(self.violations) >= MAX_VIOLATIONS

    def is_new(self, violation: Violation) -> bool:
        """Return whether a violation is to be kept: there is room, and one of its subjects has not been reported."""
        return not (self.is_full or self._subjects.issuperset(violation.subjects))

    def keep(self, violation: Violation) -> None:
        """Keep a violation with its step and first event."""
        self._subjects |= violation.subjects
        self.violations.append(violation)

    def new_among(self, suspicions: Sequence[Suspicion]) -> list[Suspicion]:
        """Return the suspicions to be kept, one per set of subjects."""
        fresh: dict[frozenset[Subject], Suspicion] = {}
        for suspicion in suspicions:
            if self.is_new(suspicion.violation):
                fresh.setdefault(suspicion.violation.subjects, suspicion)
        return [*fresh.values()][: MAX_VIOLATIONS - len(self.violations)]

    def causes_of(
        self,
        suspicions: Sequence[Suspicion],
        requests: Mapping[int, Request] | None,
        recent: Sequence[NumberedEvent],
        newest: int | None,
    ) -> list[int | None]:
        """Return the number of each suspicion's first event; else of the newest one about the same blocks or requests.

        requests: those that the engine keeps; None if it is no longer followed. recent: the events to name then, oldest
        first. newest: the newest event's number, if none of them is about the same.
        """
        nearest = NearestEvents(self.violations, recent, newest)
        found = zip(suspicions, self._first_events(suspicions, requests), strict=True)
        return [nearest.about(one.violation) if number is None else number for one, number in found]

    def _first_events(
        self, suspicions: Sequence[Suspicion], requests: Mapping[int, Request] | None
    ) -> Sequence[int | None]:
        traced = suspicions[: max(0, MAX_FIRST_EVENTS - len(self.violations))]
        found: list[int | None] = [None] * len(suspicions)
        if traced and self._timeline is not None and requests is not None:
            try:
                found[: len(traced)] = first_events(self._timeline, traced, requests)
            except Exception as error:
                self._on_failure(error)
        return found


def event_of(one: Violation) -> ViolationFound:
    """Return the event that reports a violation."""
    about = one.rule, one.message, one.request_ids, one.block_ids
    return ViolationFound(*about, one.step or 0, one.first_event, one.misnamed, one.fact)


def violation_of(event: ViolationFound) -> Violation:
    """Return the violation that an event reports."""
    about = event.rule, event.message, event.request_ids, event.block_ids
    return Violation(*about, event.step, event.first_event, event.misnamed, event.fact)
