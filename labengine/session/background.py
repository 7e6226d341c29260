"""Stepping while the notebook stays free: the lab's own thread steps, and runs what is posted to it."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from labengine.engine.interrupts import interrupts_deferred
from labengine.session.outcome import Outcome
from labengine.session.thread_interrupt import UnitOfWork

Job = tuple[Outcome, Callable[[], Any]]


class LabClosedError(RuntimeError):
    """Somebody asked a closed lab to do something."""

    def __init__(self) -> None:
        super().__init__("this lab is closed; make a new one")


class Background:
    """An actor: `step()` is called again and again while it is running, posted calls in between.

    Widget callbacks arrive on any thread; they post and never wait. step() returns a falsy value when nothing is left
    to do, which ends the run. An exception of step() ends it too, and is kept in `error`. on_end() is called after a
    run, on the same thread. The thread starts with its first use, in the context of its caller, so that what a listener
    prints lands in that cell.
    """

    def __init__(self, step: Callable[[], object], on_end: Callable[[], object] = lambda: None) -> None:
        self._step = step
        self._on_end = on_end
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._guard = threading.Lock()
        self._work = UnitOfWork()
        self._is_running = False
        self._num_starts = 0
        """Calls of start() whose beginning has not come yet."""
        self._is_closed = False
        self.error: BaseException | None = None

    @property
    def is_running(self) -> bool:
        """True from start() until pause(), the end of the work, or an error."""
        return self._is_running

    def start(self) -> None:
        """Begin to step. An interrupt may come before the beginning; pause() ends that one, too."""
        with interrupts_deferred():
            if threading.current_thread() is self._thread:
                return self._begin()
            with self._guard:
                begun = self._post(self._begin_as_asked)
                self._num_starts += 1
            begun.result()

    def pause(self, *, wait: bool = True) -> None:
        """Stop; the step under way is finished first, unless it does not end (see `hurry`).

        wait=False for a caller whom that step waits for.
        """
        with interrupts_deferred():
            self.hurry()
            if self._is_running or self._num_starts:
                if wait:
                    self._on_thread(self._end)
                else:
                    self.post(self._end)

    def hurry(self) -> None:
        """Have a step that is under way half a second from now interrupted, wherever its scheduling stands."""
        if threading.current_thread() is not self._thread:
            self._work.hurry()

    def post(self, call: Callable[[], Any]) -> Outcome:
        """Run `call` on the lab's thread; the Future carries its result or its error."""
        with interrupts_deferred(), self._guard:
            return self._post(call)

    def close(self) -> None:
        """End the thread, after the step under way."""
        with interrupts_deferred():
            with self._guard:
                if not self._is_closed:
                    self._is_closed, self._is_running = True, False
                    self._jobs.put(None)
            self.hurry()
            if self._thread is not None and threading.current_thread() is not self._thread:
                self._thread.join(timeout=30)

    def _on_thread(self, call: Callable[[], Any]) -> None:
        if threading.current_thread() is self._thread:
            call()
        else:
            self.post(call).result()

    def _post(self, call: Callable[[], Any]) -> Outcome:
        outcome = Outcome()
        self._ensure_thread()
        self._jobs.put((outcome, call))
        return outcome

    def _begin(self) -> None:
        self._is_running, self.error = not self._is_closed, None

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
        if self._thread is None:
            context = contextvars.copy_context()
            self._thread = threading.Thread(target=context.run, args=(self._run,), name="labengine", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(block=not self._is_running)
            except queue.Empty:
                self._step_once()
                continue
            if job is None:
                self._on_end()
                return
            outcome, call = job
            outcome.of(partial(self._work.do, call))

    def _step_once(self) -> None:
        try:
            if not self._work.do(self._step):
                self._end()
        except BaseException as error:
            self.error = error
            self._end()
