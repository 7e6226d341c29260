"""The state of a driven engine by its events, which go on to a lab's recording and its listeners."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from labengine import events as ev
from labengine.check.findings import violation_of
from labengine.core.request import Request, RequestStatus
from labengine.driven.driven import Patch
from labengine.driven.model import DrivenModel
from labengine.driven.process import EngineLostError
from labengine.driven.states import StateReader
from labengine.engine.step_report import StepReport
from labengine.record.files.file_access import MAX_BYTES
from labengine.record.fold import Fold
from labengine.record.gap import Gap
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline
from labengine.record.violation import Violation, gravest_first
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


class ContinuedReader(LiveReader):
    """A LiveReader whose recording goes on where the engine's state contradicts its events: a lab keeps its history."""

    def _begin(self, document: dict[str, Any], state: Fold, gap: str, gap_before: Gap | None) -> None:
        if not self.pieces:
            return super()._begin(document, state, gap, gap_before)
        piece = self.pieces[-1]
        if gap_before is not None:
            piece.contradict([f"it changed, and no event can tell how: {gap}"])
        piece.go_on_from(state)


class EventReader:
    """Reads the events that a driver's tap sends. The other source of a Mirror is StateReader."""

    def __init__(self, model: DrivenModel, timeline: Timeline, hooks: Hooks, max_finished: int | None) -> None:
        self._model = model
        self._reader = ContinuedReader(model.name, timeline, hooks, MAX_BYTES, max_finished)

    @property
    def seams(self) -> dict[str, Any]:
        """The engine's method that decides each kind of event."""
        return {} if self._reader.header is None else self._reader.header.code

    is_contradicted = False
    """The tap's state is told between two steps only."""

    @property
    def fold(self) -> Fold:
        """The engine's state after the newest call."""
        return self._reader.pieces[-1].fold

    @property
    def timeline(self) -> Timeline:
        """The recording."""
        return self._reader.timeline

    def take(self, answer: dict[str, Any]) -> None:
        """Follow the events of an answer. The state after a failed call, its last message, is none to go on from."""
        if self._reader.header is None and self._model.header is not None:
            self._reader.header = header_of(self._model.header, self._model.name)
        messages = answer["messages"]
        if answer["error"] and messages and "k" in messages[-1]:
            messages = messages[:-1]
        for message in messages:
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
        self._model, self.timeline, self._hooks, self._max_finished = model, timeline, hooks, max_finished
        self._restored: Fold | None = None
        self._relay, self._reader = self._following(timeline, hooks)

    def _following(self, timeline: Timeline, to: Hooks | None) -> tuple[Relay, EventReader | StateReader]:
        relay = Relay(to)
        reader = EventReader if self._model.driven.engine.has_events else StateReader
        return relay, reader(self._model, timeline, relay, self._max_finished)

    @property
    def seams(self) -> dict[str, Any]:
        """The engine's method that decides each kind of event."""
        patches = {patch.method: patch for patch in self._model.driven.patches}
        return {kind: _patched(seam, patches.get(seam["seam"])) for kind, seam in self._reader.seams.items()}

    @property
    def fold(self) -> Fold:
        """The engine's state after the newest call, or before one that failed."""
        return self._reader.fold if self._restored is None else self._restored

    @property
    def is_contradicted(self) -> bool:
        """True while the events of the open step do not lead to the engine's state."""
        return self._reader.is_contradicted

    def take(self, answer: dict[str, Any]) -> StepReport:
        """Follow the events of an answer; return the report on its step. Raises EngineLostError for damaged ones."""
        self.begin_call()
        try:
            self._reader.take(answer)
            return report_of(self._relay.events, self.fold.step)
        except Exception as error:
            self._model.restart()
            raise EngineLostError(f"its events cannot be read: {error}") from None

    def used_blocks(self, before: Fold) -> int:
        """Return the blocks in use during the newest call's forward pass. before: the state before it, to be moved."""
        for event in self._relay.events:
            if type(event) is ev.ForwardRan:
                return before.num_used_blocks
            before.apply(event)
        return 0

    def record(self, event: ev.Event) -> None:
        """Record an event that is not the engine's, such as a violation."""
        self._reader.record(event)

    def begin_call(self) -> None:
        """Forget the events of the call before."""
        self._relay.events = []

    def fail(self, failed: ev.StepFailed) -> None:
        """Roll back the step whose events were taken last, or one that had none."""
        record = self._reader.record
        if not any(isinstance(event, ev.StepStarted) and event.step == failed.step for event in self._relay.events):
            record(ev.StepStarted(failed.step))
        record(failed)
        record(ev.StepRolledBack(failed.step, failed.error))
        self._restored = self._reader.timeline.state()

    def repeat(self, answers: Iterable[dict[str, Any]]) -> None:
        """Follow an engine that repeats the calls so far, without another word to the recording and its listeners.

        If it fails, nothing changes.
        """
        before = self._relay, self._reader
        self._relay, self._reader = self._following(Timeline(1), None)
        try:
            for answer in answers:
                self.take(answer)
        except BaseException:
            self._relay, self._reader = before
            raise
        self._reader.go_on_in(self.timeline)
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


def _patched(seam: dict[str, Any], patch: Patch | None) -> dict[str, Any]:
    """Return a seam, with a patch's text instead of the place in the engine's file."""
    if patch is None:
        return seam
    reason = f"Your {patch.method}, instead of {seam['module']}'s."
    return {**seam, "reason": reason, "place": f"{patch.file}, line {seam['line']}", "source": patch.text.strip()}


def report_of(events: Iterable[ev.Event], step: int) -> StepReport:
    """Return the report on a step from its events."""
    scheduled, sampled = dict[int, int](), dict[int, tuple[int, ...]]()
    drafted, accepted = dict[int, int](), dict[int, int]()
    preempted, finished, violations = list[int](), list[int](), list[Violation]()
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
            case ev.ViolationFound():
                violations.append(violation_of(event))
    report = StepReport(step, scheduled, tuple(preempted), tuple(finished), sampled, drafted, accepted)
    return replace(report, violations=tuple(gravest_first(violations)))
