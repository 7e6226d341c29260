"""The background of a lab: takes steps while the notebook stays free, and runs posted calls."""

from __future__ import annotations

import _thread
import contextvars
import ctypes
import math
import queue
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from labengine.engine.endless import SAMPLE_INTERVAL_S, EndlessLoop, care_after, frame_of
from labengine.engine.interrupts import acquire_interruptibly, interrupts_deferred
from labengine.engine.safe_points import Care, is_in_step, is_safe_point
from labengine.session.stepper import LabClosedError
from labengine.system.threads import call_on_loop, start_thread

T = TypeVar("T")

SLICE = 1 / 50
"""Seconds of steps per slice on an event loop, which everything else shares."""

_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
_raise_in.argtypes, _raise_in.restype = (ctypes.c_ulong, ctypes.py_object), ctypes.c_int


# -- interrupting an endless step, in a thread that Ctrl-C does not reach ----------------------------------------------


class InterruptibleCall:
    """A call in progress on its thread. Another thread may interrupt a step in it."""

    def __init__(self) -> None:
        self._thread_id = threading.get_ident()
        self._has_ended = False
        self._is_watched = False
        self._loop: EndlessLoop | None = None
        """The loop that was interrupted."""

    def run(self, call: Callable[[], T]) -> T:
        """Run the call; return its result. An interrupt's note names the loop that was interrupted."""
        try:
            return call()
        except KeyboardInterrupt as error:
            if self._loop is not None:
                self._loop.note(error)
            raise
        finally:
            self._has_ended = True

    def end_step(self) -> None:
        """Interrupt a step of this call once it has taken too long (see `care_after`). Does not wait."""
        if not (self._is_watched or self._has_ended):
            self._is_watched = True
            _thread.start_new_thread(self._watch, ())

    def _watch(self) -> None:
        since, loop = time.monotonic(), EndlessLoop(self._thread_id)
        while not self._has_ended:
            time.sleep(SAMPLE_INTERVAL_S)
            if self._loop is None:  # after an interrupt the thread is already leaving the loop
                loop.sample()
            care = care_after(time.monotonic() - since)
            if care is not None and self._interrupt(care, loop):
                since = time.monotonic()  # code that catches the interrupt gets another one

    def _interrupt(self, care: Care, loop: EndlessLoop) -> bool:
        """Raise a KeyboardInterrupt in a step of the call; return False where it is not at a safe point."""
        number, error = ctypes.c_ulong(self._thread_id), ctypes.py_object(KeyboardInterrupt)
        frame = frame_of(self._thread_id)
        if frame is None:
            return False
        at = frame.f_lasti
        if not (is_in_step(frame) and is_safe_point(frame, care) and frame_of(self._thread_id) is frame):
            return False
        # From here to the call no instruction lets another thread run: the step is interrupted at the point just read.
        # After the call its thread may end, and a new thread may get the same id.
        if frame.f_lasti != at or self._has_ended:
            return False
        self._loop = loop
        return bool(_raise_in(number, error))


# -- the thread --------------------------------------------------------------------------------------------------------


class Outcome(Future[Any]):
    """The result of a posted call, or its error. An interrupt while waiting for it leaves the Future's lock free.

    A plain Future takes its lock in Python code: an interrupt at the wrong instruction would leave it locked, and the
    thread with the result would wait forever.
    """

    def of(self, call: Callable[[], Any]) -> None:
        """Run the call; keep its result or its error."""
        try:
            result = call()
        except BaseException as error:
            self.set_exception(error)
        else:
            self.set_result(result)

    def result(self, timeout: float | None = None) -> Any:
        """Return the value or raise the call's error, as Future.result. TimeoutError after `timeout` seconds."""
        with interrupts_deferred():
            self._wait(timeout)
            return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Call Future.exception with interrupts deferred."""
        with interrupts_deferred():
            self._wait(timeout)
            return super().exception(0)

    def done(self) -> bool:
        """Call Future.done with interrupts deferred."""
        with interrupts_deferred():
            return super().done()

    def cancel(self) -> bool:
        """Call Future.cancel with interrupts deferred."""
        with interrupts_deferred():
            return super().cancel()

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """Call Future.add_done_callback with interrupts deferred."""
        with interrupts_deferred():
            super().add_done_callback(fn)

    def _wait(self, timeout: float | None) -> None:
        gate = threading.Lock()
        gate.acquire()
        self.add_done_callback(lambda _: gate.release())
        acquire_interruptibly(gate, math.inf if timeout is None else timeout)


class OutcomeOnLoop(Outcome):
    """The result of a call that waits for the event loop. result() runs it at once: waiting would block the loop."""

    def __init__(self, catch_up: Callable[[], object]) -> None:
        super().__init__()
        self._catch_up = catch_up

    def _wait(self, timeout: float | None) -> None:
        self._catch_up()


Job = tuple[Outcome, Callable[[], Any]]  # a call may return any type


class Background:
    """An actor: while it runs it calls `step()` again and again, and posted calls in between.

    Widget callbacks arrive on any thread; they post and never wait. A falsy result of step() ends the run, and so does
    an exception, which is kept in `error`. on_end() is called after a run, on the same thread. The thread starts with
    its first use, in the caller's context, so that a listener's prints go to that cell.

    The thread refers to its Background only while it works: once nothing else refers to it, it is freed and the thread
    ends.

    In a Python without threads the event loop does the same: posted calls, then steps for SLICE seconds, then
    everything else that waits for the loop.
    """

    def __init__(self, step: Callable[[], object], on_end: Callable[[], object] = lambda: None) -> None:
        self._step = step
        self._on_end = on_end
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_on_loop = False
        """True where threads cannot start: the event loop does the work."""
        self._is_due = False
        """True while a slice is scheduled on the event loop."""
        self._guard = threading.Lock()
        self._call: InterruptibleCall | None = None
        """The newest call on this thread."""
        self._is_running = False
        self._num_starts = 0
        """Calls of start() that have not begun yet."""
        self._is_closed = False
        self.error: BaseException | None = None

    @property
    def is_running(self) -> bool:
        """True from start() until pause(), the end of the work, or an error."""
        return self._is_running

    def start(self) -> None:
        """Begin to step. pause() also ends a start that was interrupted before it began."""
        with interrupts_deferred():
            if threading.current_thread() is self._thread:
                return self._begin()
            with self._guard:
                begun = self._post(self._begin_as_asked)
                self._num_starts += 1
            begun.result()

    def pause(self, *, wait: bool = True) -> None:
        """Stop after the current step; interrupt a step that does not end (see `end_step`).

        wait: False for a caller on which that step waits.
        """
        with interrupts_deferred():
            self.end_step()
            if self._is_running or self._num_starts:
                if wait:
                    self._on_thread(self._end)
                else:
                    self.post(self._end)

    def end_step(self) -> None:
        """Interrupt the current step if it has not ended in half a second."""
        call = self._call
        if call is not None and not self._is_own_thread:
            call.end_step()

    def post(self, call: Callable[[], Any]) -> Outcome:
        """Run a call on this thread; return its outcome."""
        with interrupts_deferred(), self._guard:
            return self._post(call)

    def close(self) -> None:
        """End the thread after its current step."""
        with interrupts_deferred():
            with self._guard:
                if not self._is_closed:
                    self._is_closed, self._is_running = True, False
                    self._jobs.put(None)
            self.end_step()
            if self._is_on_loop:
                self._catch_up()
            elif self._thread is not None and not self._is_own_thread:
                self._thread.join(timeout=30)

    @property
    def _is_own_thread(self) -> bool:
        """True on the thread that takes the steps, or that runs the event loop if the loop takes them."""
        return self._is_on_loop or threading.current_thread() is self._thread

    def _on_thread(self, call: Callable[[], Any]) -> None:
        if self._is_own_thread:
            call()
        else:
            self.post(call).result()

    def _post(self, call: Callable[[], Any]) -> Outcome:
        self._ensure_thread()
        outcome = OutcomeOnLoop(self._catch_up) if self._is_on_loop else Outcome()
        self._come_soon()
        self._jobs.put((outcome, call))
        return outcome

    def _begin(self) -> None:
        self._is_running, self.error = not self._is_closed, None
        self._come_soon()

    def _begin_as_asked(self) -> None:
        self._begin()
        with self._guard:
            self._num_starts -= 1

    def _end(self) -> None:
        self._is_running = False
        self._on_end()

    def _ensure_thread(self) -> None:
        if self._is_closed:
            raise LabClosedError
        if self._thread is None and not self._is_on_loop:
            run = partial(contextvars.copy_context().run, _run, self._jobs, weakref.ref(self))
            self._thread = start_thread(run, "labengine")
            self._is_on_loop = self._thread is None
            weakref.finalize(self, self._jobs.put, None).atexit = False

    def _do(self, job: Job) -> None:
        outcome, call = job
        outcome.of(partial(self._interruptible, call))

    def _interruptible(self, call: Callable[[], T]) -> T:
        self._call = InterruptibleCall()
        return self._call.run(call)

    def _step_once(self) -> None:
        try:
            if not self._interruptible(self._step):
                self._end()
        except BaseException as error:
            self.error = error
            self._end()

    # -- on the event loop, in a Python without threads ----------------------------------------------------------------

    def _come_soon(self) -> None:
        if self._is_on_loop and not self._is_due:
            call_on_loop(self._slice)
            self._is_due = True

    def _slice(self) -> None:
        self._is_due, deadline = False, time.monotonic() + SLICE
        self._catch_up()
        while self._is_running and self._jobs.empty() and time.monotonic() < deadline:
            self._step_once()
        if self._is_running or not self._jobs.empty():
            self._come_soon()

    def orphan(self) -> None:
        """End after the current step, because its lab can no longer be reached. Does not wait."""
        self._is_closed, self._is_running = True, False
        self._jobs.put(None)

    def _catch_up(self) -> None:
        """Run the posted calls, oldest first."""
        while not self._jobs.empty():
            job = self._jobs.get()
            if job is None:
                self._on_end()
            else:
                self._do(job)


def _run(jobs: queue.SimpleQueue[Job | None], of: weakref.ref[Background]) -> None:
    """Do posted jobs, and steps while the Background runs; end at None. A waiting thread refers only to the queue."""
    while (background := of()) is not None:
        is_running = background._is_running
        if not is_running:
            del background
        try:
            job = jobs.get(block=not is_running)
        except queue.Empty:
            background._step_once()
            continue
        if (background := of()) is None:
            return
        if job is None:
            background._on_end()
            return
        background._do(job)
        del background, job
