"""A Future that can be waited for with Ctrl-C at hand."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from labengine.engine.interrupts import interrupts_allowed, interrupts_deferred


class Outcome(Future[Any]):
    """What a posted call came to. An interrupt while waiting, or while asking, leaves the Future's own lock free.

    The plain Future's lock is taken by Python code, so that an interrupt at the wrong instruction leaves it taken, and
    the thread that has the result waits for ever.
    """

    def of(self, call: Callable[[], Any]) -> None:
        """Call, and be its result or its error."""
        try:
            result = call()
        except BaseException as error:
            self.set_exception(error)
        else:
            self.set_result(result)

    def result(self, timeout: float | None = None) -> Any:
        """As Future.result: the value, or the call's own error. TimeoutError when it takes too long."""
        with interrupts_deferred():
            self._wait(timeout)
            return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As Future.exception."""
        with interrupts_deferred():
            self._wait(timeout)
            return super().exception(0)

    def done(self) -> bool:
        """As Future.done."""
        with interrupts_deferred():
            return super().done()

    def cancel(self) -> bool:
        """As Future.cancel."""
        with interrupts_deferred():
            return super().cancel()

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """As Future.add_done_callback."""
        with interrupts_deferred():
            super().add_done_callback(fn)

    def _wait(self, timeout: float | None) -> None:
        gate = threading.Lock()
        gate.acquire()
        self.add_done_callback(lambda _: gate.release())
        with interrupts_allowed():
            gate.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
