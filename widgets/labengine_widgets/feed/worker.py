"""The worker of a feed: it waits until it is woken, sends new events, and limits the rate."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Protocol
from weakref import ref

from labengine.system.threads import Cancellable, call_on_loop, start_thread, weakly
from labengine_widgets.feed.wake_flag import WakeFlag

PERIOD = 1 / 50
"""Seconds between two messages of state, at least."""

PATIENCE = 0.1
"""Seconds to wait for the end of a step that is taken by hand, before its first part is shown."""

IDLE = 0.5
"""Seconds between two reads of a quiet lab's status, and seconds without events before the state is saved."""

Call = Callable[[], object]


class Job(Protocol):
    """The work of a worker."""

    @property
    def is_live(self) -> bool:
        """False when no more events will come: the worker settles the job and ends."""

    @property
    def num_messages(self) -> int:
        """Messages of state sent."""

    @property
    def num_bytes(self) -> int:
        """Bytes of all messages of state, over all views."""

    @property
    def bytes_a_second(self) -> int:
        """Upper bound of the average rate of messages of state."""

    @property
    def awaited_moment(self) -> int | None:
        """The recording's newest moment while a step by hand is open; None when there is no step to wait for."""

    def tick(self) -> None:
        """Send new events, and answer questions."""

    def guarded(self, call: Call) -> None:
        """Run a call; if it raises, report the error beside the widgets."""

    def report(self, error: Exception) -> None:
        """Report an error beside the widgets."""

    def begin_anew(self) -> None:
        """Have the next tick send everything again, after an error."""

    def settle(self) -> None:
        """Send all unsent events, and stop the worker."""


class Work(Enum):
    """The thread that runs a worker's ticks."""

    STOPPED = auto()
    """None: no view is attached, or nothing is added to the recording any more."""
    ON_THREAD = auto()
    """The feed's own thread."""
    ON_EVENT_LOOP = auto()
    """The thread of the kernel's event loop: this Python has no other threads, as JupyterLite's."""


class Worker:
    """Runs a job's `tick` whenever it is woken: on a thread or, in a Python without threads, on the event loop.

    Neither keeps it alive: a feed that nobody holds is freed with its lab, and its thread ends.
    """

    def __init__(self, job: Job) -> None:
        self.calls: deque[Call] = deque()
        """Calls to run at the next tick."""
        self._job = job
        self._state = Work.STOPPED
        self._wake, self._closed = WakeFlag(), WakeFlag()
        self._is_hurried = False
        self._thread: threading.Thread | None = None
        self._next: Cancellable | None = None
        """The next tick on the event loop; None before there is one."""
        self._due = 0.0
        """When the next message may be sent, in the seconds of time.monotonic."""

    @property
    def is_stopped(self) -> bool:
        """True before `start` and after `stop`."""
        return self._state is Work.STOPPED

    @property
    def is_woken(self) -> bool:
        """True if something has happened since the tick began."""
        return self._wake.is_set()

    def start(self) -> None:
        """Begin to run ticks."""
        self._closed = WakeFlag()
        self._state = Work.ON_THREAD
        self._thread = start_thread(partial(_run, ref(self), self._wake, self._closed), "labengine-feed")
        if self._thread is None:
            self._wake.clear()  # set by `stop`
            self._state = Work.ON_EVENT_LOOP

    def stop(self) -> Callable[[], None]:
        """End the ticks. Returns a function that waits for the thread's end, at most two seconds."""
        thread, self._thread = self._thread, None
        self._state = Work.STOPPED
        if self._next is not None:
            self._next.cancel()
        self._closed.set()
        self._wake.set()

        def join() -> None:
            if thread is not None and thread.is_alive() and thread is not threading.current_thread():
                thread.join(timeout=2)

        return join

    def post(self, call: Call) -> None:
        """Run a call at the next tick, which comes at once."""
        self.calls.append(call)
        self.wake()

    def wake(self) -> None:
        """Run a tick soon. Cheap: an engine's listener calls it for every event."""
        if not self._wake.is_set():
            self._wake.set()
            if self._state is Work.ON_EVENT_LOOP:
                self._tick_in(0)

    def publish_soon(self) -> None:
        """Run a tick at once, without waiting for the end of an open step."""
        self._is_hurried = True
        self.wake()

    def begin_tick(self) -> None:
        """Note that a tick begins, which handles everything up to now."""
        self._wake.clear()
        self._is_hurried = False

    def is_quiet(self) -> bool:
        """Wait for IDLE seconds; True if nothing happened. An event loop is not kept waiting."""
        return self._state is Work.ON_EVENT_LOOP or not self._wake.wait(IDLE)

    def _tick_in(self, seconds: float) -> None:
        if self._next is not None:
            self._next.cancel()
        try:
            self._next = call_on_loop(weakly(self._tick_on_loop), seconds)
        except RuntimeError:  # without a running loop no front end is connected; a later wake tries again
            self._wake.clear()

    def _tick_on_loop(self) -> None:
        job = self._job
        try:
            job.tick()
        except Exception as error:
            job.report(error)
            job.begin_anew()
        if not job.is_live:
            job.settle()
        elif not self._wake.is_set() and not self.is_stopped:
            self._tick_in(IDLE)

    def take_turn(self, closed: WakeFlag) -> bool:
        """Tick on the thread, then wait until the next message is due; return False when no more events will come."""
        job, self._due = self._job, max(self._due, time.monotonic() - PERIOD)
        num_messages, num_bytes = job.num_messages, job.num_bytes
        self._wake.clear()
        try:
            self._wait_for_step(closed)
            job.tick()
        except Exception as error:  # a view must never stop the lab; it begins anew instead
            job.report(error)
            closed.wait(IDLE)
            job.begin_anew()
            self._wake.set()
        if not job.is_live:
            job.settle()
        elif job.num_messages > num_messages:
            self._due += max(PERIOD, (job.num_bytes - num_bytes) / job.bytes_a_second)
            closed.wait(max(0.0, self._due - time.monotonic()))
        return job.is_live

    def _wait_for_step(self, closed: WakeFlag) -> None:
        """Wait up to PATIENCE seconds for the end of a step taken by hand: views show such a step in one piece."""
        deadline, seen = time.monotonic() + PATIENCE, -1
        while not self._is_hurried and not closed.is_set():
            end = self._job.awaited_moment
            if end is None or end == seen or time.monotonic() > deadline or self.calls:
                return
            seen = end
            self._wake.wait(PERIOD)
            self._wake.clear()


def _run(of: ref[Worker], wake: WakeFlag, closed: WakeFlag) -> None:
    """Have a worker take a turn whenever it is woken, until it is closed or freed."""
    while not closed.is_set():
        wake.wait(IDLE)
        worker = of()
        if worker is None or not worker.take_turn(closed):
            return
        del worker
