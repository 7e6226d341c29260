"""From the engine's recording to the browsers: one thread per lab reads it, encodes it once, and sends it to all."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

from labengine import events as ev
from labengine.record.timeline import Timeline
from labengine_widgets.feed.payload import Payload, packed, step_start, stretch
from labengine_widgets.feed.publisher import NewestStep, Publisher, ShownState
from labengine_widgets.feed.viewers import BYTES_A_SECOND, Viewer, Viewers
from labengine_widgets.feed.worker import IDLE, PERIOD, Worker
from labengine_widgets.selection import Selection, is_selection, selection_of
from labengine_widgets.view_source import ViewSource
from labengine_widgets.why import answer
from labengine_widgets.words.captions import Caption, caption_rows

HEARD = (
    ev.EngineStarted,
    ev.StepStarted,
    ev.StepEnded,
    ev.StepFailed,
    ev.StepRolledBack,
    ev.RequestAdded,
    ev.RequestFinished,
    ev.PrefixCacheReset,
    ev.BlocksLoaded,
    ev.LoadFailed,
    ev.ViolationFound,
)
"""Events that begin or end an operation. Those in between are read from the recording."""

OLDER_EVENTS = 20_000
"""Approximate number of events sent at once to a view that goes back beyond its oldest."""

Message = dict[str, Any]

_feeds: WeakValueDictionary[str, Feed] = WeakValueDictionary()
_making = threading.Lock()


def feed_of(view_source: ViewSource) -> Feed:
    """Return the feed of a lab: one feed serves all its views."""
    with _making:
        return _feeds.get(view_source.lab) or Feed(view_source)


class Feed:
    """The link between one lab and all its views. Without views it does nothing.

    The recording is the buffer: events that were not sent yet are encoded once and sent to every view, at most 50 times
    a second. A step taken by hand is sent with captions; a run is sent without, and its last step gets captions when
    the lab pauses. After an error in a view, that view asks for the message again; the engine is not disturbed.

    A recording that no longer grows (the view source's is_live is False) needs no thread: questions are answered on the
    thread that asks them.

    on_select, on_moment_shown: called when a reader selects something, or goes to a moment, in a browser.
    failures: the newest errors of views, callbacks and answers.
    """

    def __init__(self, view_source: ViewSource) -> None:
        self.view_source = view_source
        self.on_select: Callable[[Selection | None], object] = lambda selection: None
        self.on_moment_shown: Callable[[int | None], object] = lambda moment: None
        self.failures: deque[Exception] = deque(maxlen=20)
        self.shown = ShownState()
        self._viewers = Viewers()
        self._publisher = Publisher(view_source, self._viewers, self.shown, lambda: self.recording)
        self._worker = Worker(self._turn, self._awaited_moment)
        self._guard = threading.Lock()
        self._answering = threading.RLock()
        self._subscription: Any = None
        self._late: LateRecording | None = None
        _feeds[view_source.lab] = self

    # -- attaching and detaching views ---------------------------------------------------------------------------------

    def attach(self, viewer: Viewer, side: int = 0, bytes_a_second: int = BYTES_A_SECOND) -> None:
        """Send to this widget, too, until `detach`. side: 0, or 1 if this lab is the right half of a comparison.

        bytes_a_second: average rate that the connection to its browser can take.
        """
        with self._guard:
            self._viewers.admit(viewer, side, bytes_a_second)
            if self._worker.is_stopped and self.view_source.is_live:
                self._begin()
                hooks = self.view_source.hooks
                self._subscription = hooks.subscribe(self._hear, *HEARD) if hooks is not None else None
                self._worker.start()
            elif self._worker.is_stopped and self._late is None:
                self._begin()

    def detach(self, viewer: Viewer) -> None:
        """Send nothing more to this widget. Detaching the last one ends the thread; a second call has no effect."""
        with self._guard:
            self._viewers.dismiss(viewer)
            join = None if self._viewers or self._worker.is_stopped else self._end()
        if join is not None:
            join()

    def settle(self) -> None:
        """Send the rest and end the thread, because the recording no longer grows.

        The views stay, and their questions are answered. A second call has no effect.
        """
        with self._guard:
            if self._worker.is_stopped:
                return
            join = self._end()
        join()
        with self._answering:
            self.guarded(self._finish)

    def _begin(self) -> None:
        self._late = LateRecording(self.view_source)
        self._publisher.begin(self.timeline)

    def _end(self) -> Callable[[], None]:
        if self._subscription is not None:
            self._subscription.close()
        if self._late is not None:
            self._late.close()
        return self._worker.stop()

    # -- what the views show -------------------------------------------------------------------------------------------

    @property
    def is_sending(self) -> bool:
        """True while events are sent as they come: a view is attached, and the recording grows."""
        return not self._worker.is_stopped

    @property
    def timeline(self) -> Timeline | None:
        """The lab's recording, or the feed's own; None before there is one."""
        return self.view_source.timeline or (None if self._late is None else self._late.timeline)

    @property
    def recording(self) -> Timeline:
        """The recording. LookupError before there is one."""
        timeline = self.timeline
        if timeline is None:
            raise LookupError("no recording yet")
        return timeline

    @property
    def moment(self) -> int | None:
        """The moment that the views show; None: the newest one."""
        return self.shown.moment

    @property
    def selection(self) -> Selection | None:
        """The selection of all views; None for nothing."""
        return self.shown.selection

    @property
    def is_following(self) -> bool:
        """True while the newest events sent belong to a run: the views show the newest moment and play nothing."""
        return self._publisher.is_followed

    def show_moment(self, moment: int | None) -> None:
        """Have every view show a moment; None: the newest one, and follow."""
        self.shown.show(moment, self.timeline)
        num_shows = self.shown.num_shows
        self.post(lambda: self._send_shown(moment, num_shows))

    def select(self, selection: Selection | None) -> None:
        """Select something in every view; None: nothing."""
        self.shown.select(selection)
        sent = {"selection": selection and selection.to_dict(), "num_selects": self.shown.num_selects}
        self.post(lambda: self._viewers.send({"type": "select", **sent}))

    def say(self, message: dict[str, Any]) -> None:
        """Send a message without state, such as an error to show beside the controls."""
        self.post(lambda: self._viewers.send(message))

    def publish_soon(self) -> None:
        """Send all new events, even while a step is open."""
        self._worker.publish_soon()

    def full(self) -> Payload:
        """Return all that a view needs to begin: the newest steps, and the captions of the last one."""
        return self._publisher.full(self.recording.end)

    def captions(self, start: int, end: int) -> list[Caption]:
        """Return the captions between two moments."""
        return self._publisher.shared_captions.captions(start, end)

    def opening_caption(self, moment: int) -> tuple[int, list[Any]] | None:
        """Return the caption for a view that opens at a moment; None while the lab runs."""
        return self._publisher.opening_caption(moment)

    @property
    def sent(self) -> int:
        """The moment up to which events were sent."""
        return self._publisher.end

    @property
    def num_messages(self) -> int:
        """Messages of state sent."""
        return self._publisher.num_messages

    @property
    def num_bytes(self) -> int:
        """Bytes of all messages of state, over all views."""
        return self._publisher.num_bytes

    # -- the engine's thread: take note, and nothing else --------------------------------------------------------------

    def _hear(self, event: ev.Event) -> None:
        timeline, step = self.timeline, self._publisher.newest_step
        match event:
            case ev.StepStarted():
                is_by_hand = timeline is not None and not self.view_source.is_running
                step = NewestStep(True, timeline.end - 1 if timeline is not None and is_by_hand else None)
            case ev.StepEnded() | ev.StepRolledBack():
                step = step._replace(is_open=False)
            case ev.EngineStarted():
                step = NewestStep(step.is_open)
        self._publisher.newest_step = step
        self._worker.wake()

    # -- the feed's thread: the worker's turn --------------------------------------------------------------------------

    def _awaited_moment(self) -> int | None:
        timeline, step = self.timeline, self._publisher.newest_step
        return None if timeline is None or not step.is_open or step.start_by_hand is None else timeline.end

    def _turn(self) -> float | None:
        num_messages, num_bytes, seconds = self.num_messages, self.num_bytes, 0.0
        try:
            self.tick()
        except Exception as error:  # a view must never stop the lab; it starts over instead
            self.report(error)
            self._publisher.start_over()
            seconds = IDLE
        if not self.view_source.is_live:
            self.settle()
            return None
        if self.num_messages > num_messages:
            seconds = max(PERIOD, (self.num_bytes - num_bytes) / self._viewers.bytes_a_second)
        return seconds

    def tick(self) -> None:
        """Send new events, and answer questions."""
        self._worker.begin_tick()
        self._catch_up()
        if self.timeline is not None and not self._publisher.is_running and not self._worker.is_woken:
            self._pause()

    def guarded(self, call: Callable[[], object]) -> None:
        """Run a call; if it raises, report the error beside the widgets."""
        try:
            call()
        except Exception as error:
            self.report(error)

    def report(self, error: Exception) -> None:
        """Report an error beside the widgets."""
        self.failures.append(error)
        with suppress(Exception):
            self._viewers.send({"type": "failure", "message": f"{type(error).__name__}: {error}"})

    def _catch_up(self) -> None:
        if self.timeline is not None:
            self._publish()
        for _ in range(len(self._worker.calls)):  # a call that must wait puts itself back, for a later tick
            self.guarded(self._worker.calls.popleft())
        self._publisher.publish_status()

    def _publish(self) -> None:
        if not self._publisher.publish():
            self._worker.wake()

    def _pause(self) -> None:
        """The lab has paused: send the captions of a run's last step, then have every view save."""
        step = self._publisher.newest_step
        if self._publisher.is_saved or (step.is_open and step.start_by_hand is None):
            return
        if self.is_following:
            self._publisher.send_last_step()
            self._worker.wake()
        elif self._worker.is_quiet():
            self._publisher.is_saved = True
            self._save()

    def _finish(self) -> None:
        self._catch_up()
        if self.is_following:
            self._publisher.send_last_step()
        self._save()

    def _save(self) -> None:
        self._viewers.each(lambda viewer: self.guarded(viewer.update_saved))

    # -- messages of browser halves ------------------------------------------------------------------------------------

    def receive(self, viewer: Viewer, side: int, message: Message) -> None:
        """Queue a message of a browser half; the feed's thread answers it. Called on any thread."""
        answers = {"older": self._older, "captions": self._captions, "why": self._why}
        match message.get("type"):
            case "resync":
                self.post(lambda: self._answer_resync(viewer, side, message))
            case "at":
                self.post(lambda: self._note_moment(message))
            case "select":
                self.post(lambda: self._note_selection(message))
            case str(kind) if kind in answers:
                self.post(lambda: self._reply(viewer, side, message, answers[kind](message)))

    def post(self, call: Callable[[], object]) -> None:
        """Run a call on the feed's thread, or on this thread once the recording no longer grows."""
        if self.is_sending:
            self._worker.post(call)
        elif self._viewers and not self.view_source.is_live:
            with self._answering:
                self.guarded(call)

    def _send_shown(self, moment: int | None, num_shows: int) -> None:
        """Send earlier events first: a view takes events after the moment for new ones, and continues with them."""
        if self.timeline is not None:
            self._publish()
        self._viewers.send({"type": "show", "moment": moment, "num_shows": num_shows})

    def _answer_resync(self, viewer: Viewer, side: int, message: Message) -> None:
        if self.timeline is None:
            return self._worker.calls.append(lambda: self._answer_resync(viewer, side, message))
        self._publish()
        payload = self._publisher.answer_full()
        viewer.send({"type": "full", "side": side, "view": message.get("view")}, [payload])

    def _reply(self, viewer: Viewer, side: int, message: Message, payload: Payload) -> None:
        content = {"type": message["type"], "side": side, "view": message.get("view"), "id": message.get("id")}
        viewer.send(content, [packed(payload)])

    def _older(self, message: Message) -> Payload:
        """Return the events before a moment, from the start of a step on."""
        timeline = self.recording
        before = moment_of(message.get("before"), timeline)
        start = step_start(timeline, max(timeline.num_dropped, before - OLDER_EVENTS))
        events, state = timeline.events(start, before), timeline.state(start)
        return stretch(self.view_source, timeline, start, events, state) | {"end": before}

    def _captions(self, message: Message) -> Payload:
        start, end = (moment_of(message.get(name), self.recording) for name in ("start", "end"))
        return {"start": start, "end": end, "captions": caption_rows(self.captions(start, end))}

    def _why(self, message: Message) -> Payload:
        found = answer(self.view_source, self.recording, message.get("subject") or {}, message.get("moment"))
        return {"id": message.get("id"), "answer": found}

    def _note_moment(self, message: Message) -> None:
        """Note the moment that a view shows; None: the newest one. An outdated or unrecorded one is ignored."""
        if is_outdated(message.get("num_shows"), self.shown.num_shows):
            return
        moment = message.get("moment")
        if moment is None or is_moment(moment, self.recording):
            self.shown.moment = moment
            self.on_moment_shown(moment)

    def _note_selection(self, message: Message) -> None:
        """Copy a selection made in one view to all views. An outdated or impossible one is ignored."""
        is_late = is_outdated(message.get("num_selects"), self.shown.num_selects)
        if is_late or not is_selection(message.get("selection")):
            return
        selection = self.shown.selection = selection_of(message.get("selection"))
        sent = selection and selection.to_dict()
        self._viewers.send({"type": "select", "selection": sent, "from": message.get("view")})
        self.on_select(selection)


def moment_of(asked: object, timeline: Timeline) -> int:
    """Return the nearest recorded moment to one that a browser asks for; the newest one for anything but an int."""
    moment = asked if isinstance(asked, int) and not isinstance(asked, bool) else timeline.end
    return max(timeline.num_dropped, min(moment, timeline.end))


def is_moment(value: object, timeline: Timeline) -> bool:
    """True for a moment that the recording has."""
    return isinstance(value, int) and not isinstance(value, bool) and timeline.num_dropped <= value <= timeline.end


def is_outdated(num_heard: object, newest: int) -> bool:
    """True if a view reports something that Python has set again since, before the view heard of it."""
    return isinstance(num_heard, int) and num_heard < newest


class LateRecording:
    """A recording for a lab that keeps none: it begins when the first view is attached.

    `timeline` is None until the state can be read between two events. While a lab runs, this is possible at the start
    of a step. Does nothing for a lab that records.
    """

    def __init__(self, source: ViewSource) -> None:
        self._view_source = source
        self.timeline: Timeline | None = None
        self._num_heard = 0
        self._subscription = None
        if source.timeline is None and source.hooks is not None:
            self._subscription = source.hooks.subscribe(self._hear)
            self._take_state()

    def close(self) -> None:
        """Stop recording."""
        if self._subscription is not None:
            self._subscription.close()

    def _take_state(self) -> None:
        for _ in range(3):
            num_heard, state = self._num_heard, self._view_source.fold()
            if num_heard == self._num_heard and self.timeline is None:
                self.timeline = Timeline.starting_at(state)
                return

    def _hear(self, event: ev.Event) -> None:
        self._num_heard += 1
        if self.timeline is None and type(event) is ev.StepStarted:
            self.timeline = Timeline.starting_at(self._view_source.fold())
        if self.timeline is not None:
            self.timeline.record(event)
