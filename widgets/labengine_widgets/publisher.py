"""Between the engine's thread and the browser: hears every event, draws none, sends at most 30 messages a second."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from labengine import events as ev
from labengine.fold import Fold
from labengine_widgets.bench import Bench
from labengine_widgets.frames import Frame, FrameMaker
from labengine_widgets.replay import last_step, since
from labengine_widgets.runs import runs
from labengine_widgets.scene import Scene
from labengine_widgets.sentences import resting_sentence, sentence
from labengine_widgets.tier import kept_contents

Message = dict[str, Any]

PERIOD = 1 / 30
"""Seconds between two messages, at least."""

PATIENCE = 0.1
"""Seconds to wait for the rest of a step that is taken by hand, before its first part is shown."""

IDLE = 0.5
"""Seconds between two looks at the lab's status when nothing is heard."""


class Publisher:
    """One thread that turns what it has heard into messages for `send`; `rest` is called when a burst is over.

    A step taken by hand becomes frames to play; steps of a running lab become one merged frame per message, and when it
    comes to rest the last of them can be replayed. Messages of state carry consecutive numbers `seq`; who misses one
    asks `resync`. An error costs a resync, never the engine.
    """

    def __init__(self, bench: Bench, send: Callable[[Message], None], rest: Callable[[], None] = lambda: None) -> None:
        self.bench = bench
        self.seq = 0
        self.failures: deque[Exception] = deque(maxlen=20)
        self._send_raw, self._rest = send, rest
        self._heard: deque[tuple[ev.Event, bool]] = deque()
        self._num_heard = self._num_taken = 0
        self._steps_by_itself = bench.is_running
        self._is_suspect = self._is_fresh = self._wants_state = self._is_following = False
        self._caught: tuple[Fold, int] | None = None
        self._opened_at: int | None = None
        self._held_since: float | None = None
        self._status: Message = {}
        self._outbox: deque[Message] = deque()
        self._views: deque[str] = deque()
        self._wake, self._closed = threading.Event(), threading.Event()
        self._subscription = bench.hooks.subscribe(self._hear)
        self._synchronise()
        self._thread = threading.Thread(target=self._work, name="labengine-dashboard", daemon=True)

    # -- for everyone else ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to publish."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening and publishing; twice is harmless."""
        self._subscription.close()
        self._closed.set()
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=2)

    @property
    def is_alive(self) -> bool:
        """True until `close`."""
        return self._thread.is_alive()

    def resync(self, view: str) -> None:
        """Send the full state to one view."""
        self._views.append(view)
        self._wake.set()

    def open_at(self, moment: int) -> None:
        """Have every view stand right after event number `moment`, until something happens."""
        self._opened_at = moment
        self._is_suspect = True
        self._wake.set()

    def say(self, message: Message) -> None:
        """Send a message that is no state, such as an error beside the controls."""
        self._outbox.append(message)
        self._wake.set()

    def full(self) -> Message:
        """The full state as a message, at the last number sent; with the last step to replay, when the lab rests."""
        message: Message = {"type": "full", "seq": self.seq, "view": None, "status": self._look()}
        return message | {"replay": self._last_step(), "frame": self.maker.full()}

    def _last_step(self) -> Message | None:
        if self.bench.is_running or self._heard:
            return None
        replay = self._replay()
        if replay:
            self.maker.scene.peak = replay["frames"][-1]["score"][1]  # who came after the step has not seen it
        return replay

    def _replay(self) -> Message | None:
        timeline, scene = self.bench.timeline, self.maker.scene
        opened = None if self._opened_at is None else since(timeline, scene, self._opened_at)
        return opened or last_step(timeline, scene)

    # -- the engine's side: append, nothing else -----------------------------------------------------------------------

    def _hear(self, event: ev.Event) -> None:
        if type(event) is ev.StepStarted:
            self._steps_by_itself = self.bench.is_running
            if self._wants_state:
                self._wants_state, self._caught = False, (self.bench.fold(), self._num_heard)
        self._heard.append((event, self._steps_by_itself))
        self._num_heard += 1
        if not self._wake.is_set():
            self._wake.set()

    # -- the publisher's side ------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._closed.is_set():
            self._wake.wait(PERIOD if self._held_since else IDLE)
            self._wake.clear()
            begun = time.monotonic()
            try:
                self.tick()
            except Exception as error:  # a view must never take the lab down; it starts over instead
                self.failures.append(error)
                self._is_suspect = True
                self._closed.wait(IDLE)
            self._closed.wait(max(0.005, PERIOD - (time.monotonic() - begun)))

    def tick(self) -> None:
        """Publish what there is."""
        if self._caught:
            (state, num_heard), self._caught, self._is_suspect = self._caught, None, False
            self._stand_at(state, num_heard)
            self._send_full()
        elif self._is_suspect:
            self._start_over()
        if not self._is_waiting_for_more():
            self._publish(self._take())
        while self._views:
            self._send_raw(self.full() | {"view": self._views.popleft()})
        while self._outbox:
            self._send_raw(self._outbox.popleft())
        self._publish_status()
        if not self._heard and not self._is_fresh and not self._status["running"]:
            self._is_fresh = True
            self._come_to_rest()

    def _come_to_rest(self) -> None:
        """After a run the last step is sent whole, to be replayed: what was sent of it was one merged frame."""
        if self._is_following:
            self._is_following = False
            self.maker.sentence = resting_sentence(self.maker.scene)
            self._send_full()
        self._rest()

    def _is_waiting_for_more(self) -> bool:
        """A step taken by hand is best shown whole: hold its first events back, for a moment."""
        if not _is_step_open(list(self._heard)):
            self._held_since = None
            return False
        self._held_since = self._held_since or time.monotonic()
        if time.monotonic() - self._held_since < PATIENCE:
            return True
        self._held_since = None
        return False

    def _take(self) -> list[tuple[ev.Event, bool]]:
        taken = [self._heard.popleft() for _ in range(len(self._heard))]
        self._num_taken += len(taken)
        return taken

    def _publish(self, heard: Sequence[tuple[ev.Event, bool]]) -> None:
        if not heard:
            return
        self._is_fresh, self._opened_at = False, None
        events = [event for event, _ in heard]
        broken = [event for event in events if isinstance(event, ev.StepRolledBack)]
        if broken:
            self._start_over(sentence(broken[-1:], self.maker.scene))
        elif any(isinstance(event, ev.EngineStarted) for event in events):
            started = [event for event in events if isinstance(event, ev.EngineStarted)]
            self.maker.follow(events)
            self.maker.sentence = sentence(started[-1:], self.maker.scene)
            self._send_full()
        else:
            played = _num_played(heard)
            self._publish_merged(events[: len(events) - played])
            self._publish_play(events[len(events) - played :])

    def _publish_merged(self, events: Sequence[ev.Event]) -> None:
        if events:
            self._is_following = True
            self.maker.follow(events)
            self._send({"type": "diff", "frame": self.maker.merged()})

    def _publish_play(self, events: Sequence[ev.Event]) -> None:
        frames: list[Frame] = [self.maker.play(run) for run in runs(events)]
        if frames:
            self._is_following = False
            self._send({"type": "play", "is_new": isinstance(events[0], ev.StepStarted), "frames": frames})

    def _publish_status(self) -> None:
        status = self._look()
        if status != self._status:
            self._status = status
            self._send_raw({"type": "status", "status": status})

    def _look(self) -> Message:
        bench = self.bench
        failures = [f"{type(f.error).__name__}: {f.error}" for f in list(bench.hooks.failures)]
        return {
            "title": bench.title,
            "running": bench.is_running,
            "phase": bench.phase,
            "listener_failures": failures[-3:],
        }

    def _send(self, message: Message) -> None:
        self.seq += 1
        self._send_raw(message | {"seq": self.seq, "status": self._look()})

    def _send_full(self) -> None:
        self.seq += 1
        self._send_raw(self.full())

    def _start_over(self, told: str = "") -> None:
        self._synchronise()
        self.maker.sentence = told or self.maker.sentence
        self._is_fresh = False
        self._send_full()

    def _synchronise(self) -> None:
        """Take the lab's state at an instant between two events, and forget those before it.

        Beside a lab that steps on and on there may be no such instant: then the next step's start is one.
        """
        for _ in range(3):
            num_heard, state = self._num_heard, self.bench.fold()
            self._is_suspect = self._wants_state = num_heard != self._num_heard
            if not self._is_suspect:
                break
        self._stand_at(state, num_heard)

    def _stand_at(self, state: Fold, num_heard: int) -> None:
        """Go on from a state that the first num_heard events led to."""
        while self._num_taken < num_heard and self._heard:
            self._heard.popleft()
            self._num_taken += 1
        tier = kept_contents(self.bench.timeline)
        self.maker = FrameMaker(Scene(state, self.bench.token_text, tier=tier))
        self.maker.phase = self.bench.phase
        self.maker.sentence = resting_sentence(self.maker.scene)


def _is_step_open(heard: Sequence[tuple[ev.Event, bool]]) -> bool:
    """True when a step taken by hand began among these events, and did not end."""
    for event, is_running in reversed(heard):
        if isinstance(event, (ev.StepStarted, ev.StepEnded, ev.StepRolledBack)):
            return isinstance(event, ev.StepStarted) and not is_running
    return False


def _num_played(heard: Sequence[tuple[ev.Event, bool]]) -> int:
    """How many of the newest events are played one by one: the last step taken by hand, and what came after it."""
    for back, (event, is_running) in enumerate(reversed(heard)):
        if is_running:
            return back
        if isinstance(event, ev.StepStarted):
            return back + 1
    return len(heard)
