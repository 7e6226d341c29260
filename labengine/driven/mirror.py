"""The state of a driven engine by its events, which go on to a lab's recording and its listeners."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from labengine import events as ev
from labengine.core.request import Request, RequestStatus
from labengine.driven.model import DrivenModel
from labengine.driven.states import StateReader
from labengine.engine.step_report import StepReport
from labengine.record.files.file_access import MAX_BYTES
from labengine.record.fold import Fold
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline
from labengine.vllm.stream.header import header_of
from labengine.vllm.stream.reader import LiveReader


class Relay(Hooks):
    """Passes events on to other hooks, if any, and keeps those of the newest call."""

    def __init__(self, to: Hooks | None) -> None:
        super().__init__()
        self.to = to
        self.events: list[ev.Event] = []

    def __contains__(self, kind: object) -> bool:
        return True

    def emit(self, event: ev.Event) -> None:
        """Keep an event and pass it on."""
        self.events.append(event)
        if self.to is not None and type(event) in self.to:
            self.to.emit(event)


class EventReader:
    """Reads the events that a driver's tap sends. The other source of a Mirror is StateReader."""

    def __init__(self, model: DrivenModel, timeline: Timeline, hooks: Hooks, max_finished: int | None) -> None:
        self._model = model
        self._reader = LiveReader(model.name, timeline, hooks, MAX_BYTES, max_finished)

    @property
    def seams(self) -> dict[str, Any]:
        """The engine's method that decides each kind of event."""
        return {} if self._reader.header is None else self._reader.header.code

    @property
    def fold(self) -> Fold:
        """The engine's state after the newest call."""
        return self._reader.pieces[-1].fold

    @property
    def timeline(self) -> Timeline:
        """The recording."""
        return self._reader.timeline

    def take(self, answer: dict[str, Any]) -> None:
        """Follow the events of an answer."""
        if self._reader.header is None and self._model.header is not None:
            self._reader.header = header_of(self._model.header, self._model.name)
        for message in answer["messages"]:
            self._reader.take_document(message)

    def record(self, event: ev.Event) -> None:
        """Record an event that the tap did not send."""
        self._reader.pieces[-1].record(event)

    def go_on_in(self, timeline: Timeline) -> None:
        """Record in another timeline from now on, which ends at the same state."""
        self._reader.go_on_in(timeline)


class Mirror:
    """Follows one engine.

    timeline, hooks: get its events, except while it repeats earlier calls.
    max_finished: number of finished requests that are kept.
    """

    def __init__(self, model: DrivenModel, timeline: Timeline, hooks: Hooks, max_finished: int | None) -> None:
        self._model, self._timeline, self._hooks, self._max_finished = model, timeline, hooks, max_finished
        self._restored: Fold | None = None
        self._begin(timeline, hooks)

    def _begin(self, timeline: Timeline, to: Hooks | None) -> None:
        self._relay = Relay(to)
        reader = EventReader if self._model.driven.engine.has_events else StateReader
        self._reader = reader(self._model, timeline, self._relay, self._max_finished)

    @property
    def seams(self) -> dict[str, Any]:
        """The engine's method that decides each kind of event."""
        return self._reader.seams

    @property
    def fold(self) -> Fold:
        """The engine's state after the newest call, or before one that failed."""
        return self._reader.fold if self._restored is None else self._restored

    def take(self, answer: dict[str, Any]) -> StepReport:
        """Follow the events of an answer; return the report on its step."""
        self._relay.events = []
        self._reader.take(answer)
        return report_of(self._relay.events, self.fold.step)

    def fail(self, failed: ev.StepFailed) -> None:
        """Roll back the step whose events were taken last, or one that had none."""
        record = self._reader.record
        if not any(isinstance(event, ev.StepStarted) for event in self._relay.events):
            record(ev.StepStarted(failed.step))
        record(failed)
        record(ev.StepRolledBack(failed.step, failed.error))
        self._restored = self._reader.timeline.state()

    def repeat(self, answers: Iterable[dict[str, Any]]) -> None:
        """Follow an engine that repeats the calls so far, without another word to the recording and its listeners."""
        self._begin(Timeline(1), None)
        for answer in answers:
            self.take(answer)
        self._reader.go_on_in(self._timeline)
        self._relay.to, self._restored = self._hooks, None

    def show_in(self, requests: dict[int, Request]) -> None:
        """Bring requests up to date, and forget those that the state no longer has."""
        ends = {event.request_id: event.reason for event in self._relay.events if type(event) is ev.RequestFinished}
        for request_id in [*requests]:
            state = self.fold.requests.get(request_id)
            if state is None:
                del requests[request_id]
                continue
            request = requests[request_id]
            request.status = RequestStatus(state.status)
            request.token_ids[:] = state.token_ids
            request.num_computed_tokens, request.drafts = state.num_computed_tokens, state.drafts
            request.block_tables = [list(table) for table in state.block_tables]
            if request_id in ends:
                request.finish_reason = ends[request_id]  # type: ignore[assignment]


def report_of(events: Iterable[ev.Event], step: int) -> StepReport:
    """Return the report on a step from its events."""
    scheduled, sampled = dict[int, int](), dict[int, tuple[int, ...]]()
    drafted, accepted = dict[int, int](), dict[int, int]()
    preempted, finished = list[int](), list[int]()
    for event in events:
        match event:
            case ev.RequestScheduled(request_id):
                scheduled[request_id] = event.num_tokens
            case ev.RequestPreempted(request_id):
                preempted.append(request_id)
                scheduled.pop(request_id, None)
            case ev.RequestFinished(request_id):
                finished.append(request_id)
            case ev.TokenSampled(request_id):
                sampled[request_id] = (*sampled.get(request_id, ()), event.token_id)
            case ev.DraftsJudged(request_id):
                drafted[request_id] = event.num_accepted + event.num_rejected
                accepted[request_id] = event.num_accepted
    return StepReport(step, scheduled, tuple(preempted), tuple(finished), sampled, drafted, accepted)
