"""From the engine's recording to the browsers: one thread per lab reads it, encodes it once, and sends it to all."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

from labengine import events as ev
from labengine.timeline import Timeline
from labengine.trace.codec import rows
from labengine_widgets.feed.audience import Audience, Viewer
from labengine_widgets.feed.bell import Bell
from labengine_widgets.feed.late_recording import LateRecording
from labengine_widgets.feed.messages import ANSWERS, is_moment
from labengine_widgets.feed.payload import (
    ByKind,
    Payload,
    by_kind,
    ends_inside_step,
    full_payload,
    packed,
    seconds,
    status,
    step_start,
    texts,
    tokens_of,
)
from labengine_widgets.feed.states import Sending, Sent, sent_after
from labengine_widgets.selection import Selection, is_selection, selection_of
from labengine_widgets.view_source import ViewSource
from labengine_widgets.words.captions import Caption, Narration

PERIOD = 1 / 50
"""Seconds between two messages of state, at least."""

PATIENCE = 0.1
"""Seconds to wait for the rest of a step that is taken by hand, before its first part is shown."""

IDLE = 0.5
"""Seconds between two looks at the lab's status when nothing is heard; and of quiet before the state is saved."""

BYTES_A_SECOND = 500_000
"""Sent at most, on the whole: a Jupyter server drops what goes beyond a million."""

MAX_BEHIND = 10_000
"""Events not sent yet from which they are left out: the views begin anew with the newest ones."""

REMINDERS = (1, 4, 16)
"""After so many looks at a quiet lab the views are told where it stands: what came last may not have come to them."""

FIRST_EVENTS = 3_000
"""Events that a view has from the start, about; older ones come when the reader goes there."""

_WAKING = (
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
"""With which an operation begins or ends. What happens in between is read from the recording."""

_feeds: WeakValueDictionary[str, Feed] = WeakValueDictionary()
_making = threading.Lock()


def feed_of(view_source: ViewSource) -> Feed:
    """The feed of a lab: the same for all its views."""
    with _making:
        return _feeds.get(view_source.lab) or Feed(view_source)


class Feed:
    """All the views of one lab hang on it. It listens, and draws nothing; without views it does nothing at all.

    The recording is the buffer: what lies between `sent` and its end is encoded once and sent to everybody, at most 50
    times a second. A step taken by hand is told beat by beat; a running lab is only followed, and told when it rests.
    An error of a view costs that view a message, which it asks for again; never the engine.

    A recording to which nothing is added any more (the view source's is_live is False) needs no thread: questions are
    answered on the thread that brings them.
    """

    def __init__(self, view_source: ViewSource) -> None:
        self.view_source = view_source
        self.selection: Selection | None = None
        self.on_select: Callable[[Selection | None], object] = lambda selection: None
        self.on_moment_shown: Callable[[int | None], object] = lambda moment: None
        self.failures: deque[Exception] = deque(maxlen=20)
        self.num_messages = self.num_bytes = 0
        self.seconds = 0.0
        """The feed's own CPU time for messages of state, of which num_messages with num_bytes in all were sent."""
        self.sent = 0
        self._moment: int | None = None
        self._shown_at = (-1, 0)
        self._audience = Audience()
        self._asked: deque[Callable[[], object]] = deque()
        self._wake = Bell()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._subscription: Any = None
        self._hand_start: int | None = None
        self._sent = Sent.CAPTIONED
        self._is_open = self._is_impatient = self._is_alone = False
        self._answering = threading.RLock()
        self._is_inside = False  # what was sent last ends within a step: the rest of a run's is followed, not told
        self._status: Payload = {}
        self._known_texts: set[int] = set()
        self._narration = Narration(lambda: self.recording, view_source.token_text)
        self._num_quiet = 0
        self._late: LateRecording | None = None
        self._generation = -1
        self._closed = Bell()
        _feeds[view_source.lab] = self

    # -- for everyone else ---------------------------------------------------------------------------------------------

    def attach(self, viewer: Viewer, side: int = 0) -> None:
        """Send to this widget, too, until `detach`. side: which half of a compare view this lab is."""
        with self._guard:
            self._audience.admit(viewer, side)
            if self._thread is None and self.view_source.is_live:
                self._begin()
            elif self._thread is None and self._late is None:
                self._prepare()

    def detach(self, viewer: Viewer) -> None:
        """Send it nothing more. With the last view the listening and the thread end; twice is harmless."""
        with self._guard:
            self._audience.dismiss(viewer)
            thread = None if self._audience else self._thread
            if thread is not None:
                self._end()
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join(timeout=2)

    def settle(self) -> None:
        """Send what has not been sent and end the thread: nothing is added to the recording any more.

        The views stay, and their questions are answered. Twice is harmless.
        """
        with self._guard:
            thread = self._thread
            if thread is None:
                return
            self._end()
        if thread is not threading.current_thread():
            thread.join(timeout=2)
        with self._answering:
            self._guarded(self._finish)

    def close(self) -> None:
        """Close all views: the lab goes, and the feed with it."""
        self._audience.each(lambda viewer: viewer.close())

    @property
    def is_alive(self) -> bool:
        """True while some view is attached."""
        return self._thread is not None

    @property
    def timeline(self) -> Timeline | None:
        """The lab's recording, or the feed's own; None before there is one."""
        return self.view_source.timeline or (None if self._late is None else self._late.timeline)

    @property
    def moment(self) -> int | None:
        """Where the reader stands; None: at the newest moment."""
        return self._moment

    def show_moment(self, moment: int | None) -> None:
        """Have every view stand at a moment; None: at the newest one, and follow."""
        timeline = self.timeline
        self._moment, self._shown_at = moment, (timeline.generation, timeline.end) if timeline is not None else (-1, 0)
        self._post(lambda: self._audience.send({"type": "show", "moment": moment}))

    def select(self, selection: Selection | None) -> None:
        """Choose something in every view; None: nothing."""
        self.selection = selection
        message = selection and selection.to_dict()
        self._post(lambda: self._audience.send({"type": "select", "selection": message}))

    def say(self, message: dict[str, Any]) -> None:
        """Send a message that is no state, such as an error beside the controls."""
        self._post(lambda: self._audience.send(message))

    def full(self) -> Payload:
        """All that a view needs to begin: the newest steps, and the last one in words."""
        return self._full(self.recording.end)

    def _full(self, end: int) -> Payload:
        timeline = self.recording
        last = step_start(timeline, end)
        start = (
            last if end - last > FIRST_EVENTS else step_start(timeline, max(timeline.num_dropped, end - FIRST_EVENTS))
        )
        captions = [] if self.view_source.is_running else self.signed_captions(last, end)
        payload = full_payload(self.view_source, timeline, start, end, captions)
        payload |= {"selection": self.selection and self.selection.to_dict(), "shown": self._moment}
        payload |= {"captioned": [[last, end]] if captions else [], "opening": self.opening_caption(end)}
        return payload

    def receive(self, viewer: Viewer, side: int, message: dict[str, Any]) -> None:
        """A message of a browser half, on whatever thread: it is answered on the feed's."""
        kind = str(message.get("type"))
        acts: dict[str, Callable[[], object]] = {
            "resync": lambda: self._answer_resync(viewer, side, message),
            "at": lambda: self._note_moment(message),
            "select": lambda: self._note_selection(message),
        }
        if kind in acts:
            self._post(acts[kind])
        elif kind in ANSWERS:
            self._post(lambda: self._reply(viewer, side, message, ANSWERS[kind](self, message)))

    def hurry(self) -> None:
        """Send what there is, though a step be open: somebody waits to see it."""
        self._is_impatient = True
        self._wake.set()

    @property
    def is_following(self) -> bool:
        """True while what was sent last is a run's: the views go where it is, and play nothing."""
        return self._sent is Sent.FOLLOWED

    # -- the engine's side: note, and nothing else ---------------------------------------------------------------------

    def _hear(self, event: ev.Event) -> None:
        kind = type(event)
        if kind is ev.StepStarted:
            self._is_open = True
            timeline = self.timeline
            self._hand_start = None if self.view_source.is_running or timeline is None else timeline.end - 1
        elif kind is ev.EngineStarted:
            self._hand_start = None
        elif kind is ev.StepEnded or kind is ev.StepRolledBack:
            self._is_open = False
        if not self._wake.is_set():
            self._wake.set()
            self._wake_loop()

    # -- the feed's thread ---------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._late = LateRecording(self.view_source)
        self._narration.forget()
        self._happened(Sending.FULL_RECORDING)
        self._hand_start, self._num_quiet = None, REMINDERS[-1]
        self.sent = self.timeline.end if self.timeline is not None else 0
        self._generation = self.timeline.generation if self.timeline is not None else -1

    def _begin(self) -> None:
        self._prepare()
        hooks = self.view_source.hooks
        self._subscription = hooks.subscribe(self._hear, *_WAKING) if hooks is not None else None
        self._closed = Bell()
        self._thread = threading.Thread(target=self._work, args=(self._closed,), name="labengine-feed", daemon=True)
        try:
            self._thread.start()
            self._is_alone = False
        except RuntimeError:  # a Python without threads, as JupyterLite's
            self._is_alone = True

    def _wake_loop(self) -> None:
        """Without a thread the kernel's event loop does the work, as soon as it is free."""
        if self._is_alone:
            with suppress(RuntimeError):  # no loop: nobody is there to see it
                asyncio.get_running_loop().call_soon(self._guarded, self.tick)

    def _end(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
        if self._late is not None:
            self._late.close()
        self._closed.set()
        self._wake.set()
        self._thread = None

    def _work(self, closed: Bell) -> None:
        due = 0.0
        while not closed.is_set():
            self._wake.wait(IDLE)
            self._wake.clear()
            due = max(due, time.monotonic() - PERIOD)
            num_sent, num_bytes = self.num_messages, self.num_bytes
            try:
                self._wait_for_more(closed)
                self.tick()
            except Exception as error:  # a view must never take the lab down; it starts over instead
                self._send_failure(error)
                closed.wait(IDLE)
                self._restart_quietly()
            if not self.view_source.is_live:
                return self.settle()
            if self.num_messages > num_sent:
                due += max(PERIOD, (self.num_bytes - num_bytes) / BYTES_A_SECOND)
                closed.wait(max(0.0, due - time.monotonic()))

    def _wait_for_more(self, closed: Bell) -> None:
        """A step taken by hand is best shown whole: wait for its end, for a moment, unless it stands still."""
        deadline, seen = time.monotonic() + PATIENCE, -1
        while self._is_open and not self._is_impatient and self._hand_start is not None and not closed.is_set():
            timeline = self.timeline
            if timeline is None or timeline.end == seen or time.monotonic() > deadline or self._asked:
                return
            seen = timeline.end
            self._wake.wait(PERIOD)
            self._wake.clear()

    def tick(self) -> None:
        """Publish what there is, answer what was asked."""
        self._wake.clear()
        self._is_impatient = False
        self._catch_up()
        if self.timeline is not None and not self._status["running"] and not self._wake.is_set():
            self._become_idle()

    def _catch_up(self) -> None:
        if self.timeline is not None:
            self._publish()
        while self._asked:
            self._guarded(self._asked.popleft())
        self._publish_status()

    def _finish(self) -> None:
        self._catch_up()
        if self.is_following:
            self._send_last_step()
        self._audience.each(lambda viewer: self._guarded(viewer.update_saved))

    def _publish(self) -> None:
        timeline, begun = self.recording, time.thread_time()
        generation, end = timeline.generation, timeline.end
        if generation != self._generation or self.sent < timeline.num_dropped or end - self.sent > MAX_BEHIND:
            return self._start_over(generation)
        if end == self.sent:
            return self._remind()
        events = timeline.events(self.sent, end)
        if timeline.generation != generation:
            return self._wake.set()
        start, self.sent = self.sent, self.sent + len(events)
        kinds = by_kind(events)
        payload: Payload = {"start": start, "events": rows(events), "texts": self._new_texts(kinds)}
        payload["seconds"] = seconds(timeline, kinds)
        hand_start = self._hand_start
        captioned = None if hand_start is None or self.view_source.is_running else max(start, hand_start)
        if hand_start is None and not self.view_source.is_running and not kinds[ev.StepStarted] and not self._is_inside:
            captioned = start
        self._is_inside = ends_inside_step(events, self._is_inside)
        payload |= {
            "captioned": captioned,
            "captions": self.signed_captions(captioned, self.sent) if captioned is not None else [],
        }
        by_hand = Sending.EVENTS_BETWEEN_STEPS if hand_start is None else Sending.EVENTS_BY_HAND
        self._happened(Sending.EVENTS_OF_RUN if captioned is None else by_hand)
        self._move_on((generation, end))
        self._send_state({"type": "more", "generation": generation, "status": status(self.view_source)}, payload, begun)

    def _happened(self, sending: Sending) -> None:
        self._sent = sent_after(self._sent, sending)

    def _remind(self) -> None:
        """Nothing new: who missed the last message asks for all."""
        if self.view_source.is_running:
            return
        self._num_quiet += 1
        if self._num_quiet in REMINDERS:
            self._audience.send({"type": "end", "generation": self._generation, "end": self.sent})

    def _start_over(self, generation: int) -> None:
        self._happened(Sending.FULL_RECORDING)
        self._generation, self._is_inside = generation, self._is_open
        self._move_on((generation, self.recording.end))
        begun, self.sent = time.thread_time(), self.recording.end
        payload = self._full(self.sent)
        self._know_texts(payload)
        self._send_state({"type": "full", "view": None}, payload, begun)

    def _move_on(self, now: tuple[int, int]) -> None:
        """Something has happened: who stood somewhere before it stands at the newest moment again."""
        if self._shown_at < now:
            self._moment = None

    def _restart_quietly(self) -> None:
        """After an error: the next look sends everything anew."""
        self._generation = -1
        self._narration.forget()
        self._wake.set()

    def _publish_status(self) -> None:
        now = status(self.view_source)
        if now != self._status:
            self._status = now
            self._audience.send({"type": "status", "status": now})

    def _become_idle(self) -> None:
        """After a run its last step is told; and every view may save what there is to see."""
        if self._sent is Sent.SAVED or (self._is_open and self._hand_start is None):
            return
        if self.is_following:
            self._send_last_step()
            return self._wake.set()
        if not self._is_alone and self._wake.wait(IDLE):  # something happens again: save later
            return
        self._happened(Sending.SAVING)
        self._audience.each(lambda viewer: self._guarded(viewer.update_saved))

    def _send_last_step(self) -> None:
        self._happened(Sending.LAST_STEP)
        start, end = step_start(self.recording, self.sent), self.sent
        captions = {"captions": self.signed_captions(start, end), "opening": self.opening_caption(end)}
        self._audience.send({"type": "captions"}, {"start": start, "end": end, **captions})

    # -- answers -------------------------------------------------------------------------------------------------------

    def _answer_resync(self, viewer: Viewer, side: int, message: dict[str, Any]) -> None:
        if self.timeline is None:
            return self._asked.append(lambda: self._answer_resync(viewer, side, message))
        self._publish()
        self._num_quiet = 0
        payload = self._full(self.sent)
        self._know_texts(payload)
        viewer.send({"type": "full", "side": side, "view": message.get("view")}, [packed(payload)])

    def _note_moment(self, message: dict[str, Any]) -> None:
        moment = message.get("moment")
        if moment is None or is_moment(moment, self.recording):
            self._moment = moment
            self.on_moment_shown(moment)

    def _note_selection(self, message: dict[str, Any]) -> None:
        if not is_selection(message.get("selection")):
            return
        self.selection = selection_of(message.get("selection"))
        selection = self.selection and self.selection.to_dict()
        self._audience.send({"type": "select", "selection": selection, "from": message.get("view")})
        self.on_select(self.selection)

    # -- sending -------------------------------------------------------------------------------------------------------

    def _post(self, call: Callable[[], object]) -> None:
        if self.is_alive:
            self._asked.append(call)
            self._wake.set()
            self._wake_loop()
        elif self._audience and not self.view_source.is_live:
            with self._answering:
                self._guarded(call)

    def _guarded(self, call: Callable[[], object]) -> None:
        """What goes wrong in a callback or an answer is said beside the widget."""
        try:
            call()
        except Exception as error:
            self._send_failure(error)

    def _send_failure(self, error: Exception) -> None:
        self.failures.append(error)
        with suppress(Exception):
            self._audience.send({"type": "failure", "message": f"{type(error).__name__}: {error}"})

    def _reply(self, viewer: Viewer, side: int, message: dict[str, Any], payload: Payload) -> None:
        content = {"type": message["type"], "side": side, "view": message.get("view"), "id": message.get("id")}
        viewer.send(content, [packed(payload)])

    def _send_state(self, content: dict[str, Any], payload: Payload, begun: float) -> None:
        size = self._audience.send(content, payload)
        self.num_messages += 1
        self._num_quiet = 0
        self.num_bytes += size
        self.seconds += time.thread_time() - begun

    def _know_texts(self, payload: Payload) -> None:
        """A view that begins anew has forgotten all texts but those in its payload."""
        self._known_texts = {token_id for token_id, _ in payload["texts"]}

    def _new_texts(self, kinds: ByKind) -> list[tuple[int, str]]:
        new = tokens_of(kinds) - self._known_texts
        self._known_texts |= new
        return texts(self.view_source, new)

    def captions(self, start: int, end: int) -> list[Caption]:
        """The beats between two moments, as text."""
        return self._narration.plain_captions(start, end)

    def signed_captions(self, start: int, end: int) -> list[Caption]:
        """The same for a browser half, which has numbered contents itself."""
        return self._narration.captions(start, end)

    def opening_caption(self, moment: int) -> tuple[int, str] | None:
        """What is said to somebody who comes at this moment; None while the lab runs."""
        return None if self.view_source.is_running else (moment, self._narration.opening_sentence(moment))

    @property
    def recording(self) -> Timeline:
        """The recording. LookupError before there is one."""
        timeline = self.timeline
        if timeline is None:
            raise LookupError("there is no recording yet")
        return timeline
