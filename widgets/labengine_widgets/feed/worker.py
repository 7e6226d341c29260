"""The worker of a feed: it waits until it is woken, sends new events, and limits the rate."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from weakref import ref

from labengine.system.threads import Cancellable, call_on_loop, start_thread, weakly

PERIOD = 1 / 50
"""Seconds between two messages of state, at least."""

PATIENCE = 0.1
"""Seconds to wait for the end of a step that is taken by hand, before its first part is shown."""

IDLE = 0.5
"""Seconds between two reads of a quiet lab's status, and seconds without events before the state is saved."""

Call = Callable[[], object]


class WakeFlag:
    """As threading.Event, for one waiting thread, and without a lock that Python code takes.

    An interrupt inside Event.set() can leave the Event's lock taken, and then every thread that sets it or waits for it
    blocks. Here, at worst, the waiting thread notices the flag only when its timeout has passed.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._rings: SimpleQueue[None] = SimpleQueue()

    def is_set(self) -> bool:
        """True from set() to clear()."""
        return self._is_set

    def set(self) -> None:
        """Wake the waiting thread."""
        if not self._is_set:
            self._is_set = True
            self._rings.put(None)

    def clear(self) -> None:
        """Wait again."""
        self._is_set = False

    def wait(self, seconds: float) -> bool:
        """Wait until the flag is set, at most until the timeout; return True if it is set."""
        deadline = time.monotonic() + seconds
        while not self._is_set and (left := deadline - time.monotonic()) > 0:
            try:
                self._rings.get(timeout=left)
            except Empty:
                break
        return self._is_set


class Worker:
    """Takes a turn whenever it is woken: on a thread or, in a Python without threads, on the event loop.

    Neither keeps it alive: a feed that nobody holds is freed with its lab, and its thread ends.
    turn: sends new events, and answers questions; returns the seconds that the connection to the browsers needs for the
    sent bytes, or None when no more events will come. awaited_moment: the recording's newest moment while a step taken
    by hand is open, or None when there is no step to wait for.
    """

    def __init__(self, turn: Callable[[], float | None], awaited_moment: Callable[[], int | None]) -> None:
        self.calls: deque[Call] = deque()
        """Calls to run at the next tick."""
        self.is_stopped = True
        """True before `start` and after `stop`."""
        self._turn, self._awaited_moment = turn, awaited_moment
        self._is_on_loop = False
        """True where threads cannot start, as in JupyterLite: the kernel's event loop runs the turns."""
        self._wake, self._closed = WakeFlag(), WakeFlag()
        self._is_hurried = False
        self._thread: threading.Thread | None = None
        self._next: Cancellable | None = None
        """The next tick on the event loop; None before there is one."""
        self._due = 0.0
        """When the next message may be sent, in the seconds of time.monotonic."""

    @property
    def is_woken(self) -> bool:
        """True if something has happened since the tick began."""
        return self._wake.is_set()

    def start(self) -> None:
        """Begin to run ticks."""
        self._closed = WakeFlag()
        self.is_stopped = False
        self._thread = start_thread(partial(_run, ref(self), self._wake, self._closed), "labengine-feed")
        self._is_on_loop = self._thread is None
        if self._is_on_loop:
            self._wake.clear()  # set by `stop`

    def stop(self) -> Callable[[], None]:
        """End the ticks. Returns a function that waits for the thread's end, at most two seconds."""
        thread, self._thread = self._thread, None
        self.is_stopped = True
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
            if self._is_on_loop and not self.is_stopped:
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
        return self._is_on_loop or not self._wake.wait(IDLE)

    def _tick_in(self, seconds: float) -> None:
        if self._next is not None:
            self._next.cancel()
        try:
            self._next = call_on_loop(weakly(self._tick_on_loop), seconds)
        except RuntimeError:  # without a running loop no front end is connected; a later wake tries again
            self._wake.clear()

    def _tick_on_loop(self) -> None:
        if self._turn() is not None and not self._wake.is_set() and not self.is_stopped:
            self._tick_in(IDLE)

    def take_turn(self, closed: WakeFlag) -> bool:
        """Take a turn on the thread, then wait until the next message is due; return False when no events will come."""
        self._due = max(self._due, time.monotonic() - PERIOD)
        self._wake.clear()
        self._wait_for_step(closed)
        seconds = self._turn()
        if seconds:
            self._due += max(PERIOD, seconds)
            closed.wait(max(0.0, self._due - time.monotonic()))
        return seconds is not None

    def _wait_for_step(self, closed: WakeFlag) -> None:
        """Wait up to PATIENCE seconds for the end of a step taken by hand: views show such a step in one piece."""
        deadline, seen = time.monotonic() + PATIENCE, -1
        while not self._is_hurried and not closed.is_set():
            end = self._awaited_moment()
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
