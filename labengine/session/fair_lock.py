"""A lock that is granted in the order of asking, so that a busy stepper cannot starve a click on Pause."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType

from labengine.engine.interrupts import acquire_interruptibly, interrupts_deferred


class FairLock:
    """A reentrant lock, first come first served. An interrupt while waiting leaves the queue in order.

    Interrupts are deferred while the lock is held, except inside `interrupts_allowed` or `raise_deferred`, because
    Python may raise a KeyboardInterrupt as `__exit__` begins, and then the lock would never be released.
    """

    def __init__(self, on_interrupt: Callable[[], object] = lambda: None) -> None:
        self._on_interrupt = on_interrupt
        """Called when an interrupt ends a wait for the lock."""
        self._guard = threading.Lock()
        self._owner: int | None = None
        self._depth = 0
        self._queue: deque[tuple[int, threading.Lock]] = deque()

    @property
    def is_mine(self) -> bool:
        """True while the calling thread holds the lock."""
        return self._owner == threading.get_ident()

    def __enter__(self) -> None:
        deferred = interrupts_deferred()
        deferred.__enter__()
        try:
            self._acquire()
        except BaseException as error:
            deferred.__exit__(type(error), error, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._guard:
            self._depth -= 1
            if self._depth == 0:
                self._pass_on()
        interrupts_deferred().__exit__(kind, error, trace)

    def _acquire(self) -> None:
        me = threading.get_ident()
        with self._guard:
            if self._owner in (None, me):
                self._owner = me
                self._depth += 1
                return
            gate = threading.Lock()
            gate.acquire()
            place = (me, gate)
            self._queue.append(place)
        try:
            acquire_interruptibly(gate)
        except BaseException:
            self._give_up(place)
            self._on_interrupt()
            raise

    def _pass_on(self) -> None:
        self._owner = None
        if self._queue:
            self._owner, gate = self._queue.popleft()
            self._depth = 1
            gate.release()

    def _give_up(self, place: tuple[int, threading.Lock]) -> None:
        with self._guard:
            if place in self._queue:
                self._queue.remove(place)
                return
            self._depth = 0
            self._pass_on()
