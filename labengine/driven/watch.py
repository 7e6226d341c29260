"""The watch of a driven engine: the rules and the oracle, judged by its events alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from labengine import events as ev
from labengine.check.blame import NumberedEvent
from labengine.check.findings import Findings, event_of, violation_of
from labengine.check.first_event import BrokenState, Suspicion
from labengine.check.invariants import check_invariants, judge_contents
from labengine.core.request import ExtraKeys
from labengine.driven.engine import DrivenEngine
from labengine.record.fold import surviving
from labengine.record.hooks import Hooks, Subscription
from labengine.record.snapshot import Snapshot
from labengine.record.timeline import Timeline
from labengine.record.violation import Violation
from labengine.vllm.conformance.checks import StreamJudge


class DrivenWatch:
    """Does for a driven engine what Watch does for one of ours: `follow` each one.

    ViolationFound reports each violation right after the event that shows it, with its first event. Contradictions
    between the events and the engine's state, which are recorded as the state is read, are kept as well.
    """

    overrides: Mapping[str, bool | None] = MappingProxyType({})
    """None: the engine's methods are its own."""

    def __init__(self, hooks: Hooks, timeline: Timeline | None = None) -> None:
        self._hooks, self._timeline = hooks, timeline
        self._findings = Findings(timeline, self._stop)
        self._subscription: Subscription | None = None

    @property
    def violations(self) -> list[Violation]:
        """The violations of the engine, oldest first."""
        return self._findings.violations

    def follow(self, engine: DrivenEngine) -> None:
        """Judge this engine from now on. Clears the violations."""
        self.close()
        self._findings = Findings(self._timeline, self._stop)
        self._engine = engine
        self._extra_keys: dict[int, ExtraKeys] = {}
        self._start_over()
        self._subscription = self._hooks.subscribe(self._note)

    def close(self) -> None:
        """Stop watching; the violations stay. A second call has no effect."""
        if self._subscription is not None:
            self._subscription.close()
        self._subscription = None

    def check(self, snapshot: Snapshot) -> list[Violation]:
        """Judge every invariant on the complete state; return all violations found so far."""
        if self._subscription is not None:
            self._report([BrokenState(found) for found in (*check_invariants(snapshot), *judge_contents(snapshot))])
        return list(self.violations)

    def _note(self, event: ev.Event) -> None:
        if isinstance(event, ev.ViolationFound):
            self._findings.keep(violation_of(event))
            return
        try:
            found = self._judged(event)
        except Exception as error:  # a failing judge must not disturb the lab
            self._stop(error)
        else:
            self._report(found)

    def _judged(self, event: ev.Event) -> list[Suspicion]:
        if isinstance(event, ev.RequestAdded) and (keys := self._engine.requests[event.request_id].extra_keys):
            self._extra_keys[event.request_id] = keys
        timeline = self._engine.timeline
        is_same = self._start == (timeline.generation, timeline.corrected_at)
        if not is_same or isinstance(event, ev.EngineStarted | ev.StepRolledBack):
            return self._start_over()
        return [] if self._engine.is_contradicted else self._judge.follow(event)

    def _start_over(self) -> list[Suspicion]:
        """Judge the recording again, without its rolled-back steps; return what its newest event shows."""
        timeline = self._engine.timeline
        self._start = timeline.generation, timeline.corrected_at
        start = max(timeline.num_dropped, timeline.corrected_at)
        self._judge, events = StreamJudge(timeline.state(start), self._extra_keys), timeline.events(start)
        found = list[Suspicion]()
        for i in surviving(events):
            found = self._judge.follow(events[i])
        return found

    def _report(self, suspicions: list[Suspicion]) -> None:
        """Record new violations; their events are noted like any other's."""
        if not (found := self._findings.new_among(suspicions)):
            return
        step, recent = self._judge.fold.step, self._recent()
        causes = self._findings.causes_of(found, {}, recent, recent[-1].number if recent else None)
        for suspicion, number in zip(found, causes, strict=True):
            self._engine.record(event_of(replace(suspicion.violation, step=step, first_event=number)))

    def _recent(self) -> list[NumberedEvent]:
        """Return the recorded events, oldest first."""
        if (timeline := self._timeline) is None:
            return []
        return [NumberedEvent(*numbered) for numbered in enumerate(timeline.events(), timeline.num_dropped)]

    def _stop(self, error: Exception) -> None:
        self.close()
        text = f"the check itself failed and has stopped: {error!r}"
        violation = Violation("watch", text, step=self._engine.step_number)
        self._findings.keep(violation)
        self._engine.record(event_of(violation))
