"""Deferred KeyboardInterrupts: held back while the core changes, raised at once while the engine waits or computes.

Python checks for signals after almost every instruction, also inside `__enter__` and `__exit__`, so a lock that Python
code takes and releases can stay locked. Therefore SIGINT has another handler while a lock is held or the core changes.
That handler keeps the interrupt, and raises it

* where the outermost block of `interrupts_deferred` ends;
* at once inside `interrupts_allowed`: ModelRunner.forward and ModelRunner.sample, or waiting for a lock;
* where `raise_deferred` is called, such as between two steps of a run;
* after half a second, or at a second Ctrl-C, at a safe point (safe_points.py), as a part may be endless;
* after two seconds anywhere in the core, which may then be left half changed.

Only the main thread receives signals. In other threads all functions here do nothing.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread
import math
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from types import FrameType, TracebackType
from typing import Any

from labengine.engine.endless import SAMPLE_INTERVAL_S, EndlessLoop, care_after
from labengine.engine.safe_points import is_safe_point

Handler = Callable[[int, FrameType | None], Any]

# The C functions, without the conversion to enums around them: each is a single instruction, never interrupted inside.
_set_handler: Callable[[int, Any], Any] = _signal.signal
_get_handler: Callable[[int], Any] = _signal.getsignal
_SIGINT = int(signal.SIGINT)
_MAIN = threading.main_thread().ident or 0
_nudge: Callable[[], object] = (
    partial(signal.pthread_kill, _MAIN, _SIGINT)
    if hasattr(signal, "pthread_kill")
    else partial(_thread.interrupt_main, signal.SIGINT)
)
"""Calls the handler on the main thread, even while that thread waits in a system call."""

NUDGE_ARRIVES_S = 0.2
"""Seconds within which a nudge arrives, if at all."""

ROUND_S = 0.2
"""Seconds that the main thread waits for a lock at a time."""


class _Held:
    """An interrupt that is held back."""

    __slots__ = ("frame", "is_nudge_due", "is_nudged", "is_over", "loop", "num_pressed", "signum", "since")

    def __init__(self, signum: int, frame: FrameType | None) -> None:
        self.signum, self.frame = signum, frame
        self.since, self.num_pressed = time.monotonic(), 1
        self.is_over = self.is_nudged = self.is_nudge_due = False
        self.loop = EndlessLoop(_MAIN)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.since

    def nudge(self) -> None:
        """Have the handler called again, unless the interrupt is over. Called by the watching thread."""
        self.is_nudge_due = True
        if self.is_over:
            self.is_nudge_due = False
        else:
            self.is_nudged = True
            _nudge()

    def end(self) -> None:
        """Stop nudges, and wait for one that is under way, which may take a moment on another core."""
        self.is_over = True
        deadline = time.monotonic() + NUDGE_ARRIVES_S
        while self.is_nudge_due and time.monotonic() < deadline:
            time.sleep(0)


class _Deferral:
    """The main thread's nested blocks of `interrupts_deferred`, and the interrupt they hold back.

    While there are blocks and `is_open` is False, no instruction here can be interrupted. Elsewhere each call can.
    """

    def __init__(self) -> None:
        self.is_open = False
        """True where an interrupt is raised at once despite the blocks."""
        self.num_firm = 0
        """Number of blocks with firmly=True."""
        self._blocks: list[bool] = []
        """Per block, innermost last: `is_open` outside of it."""
        self._held: _Held | None = None
        self._handler: Handler = signal.default_int_handler
        self._hold_back = self._hold

    def begin(self) -> None:
        """Hold interrupts back from here on. Has no effect where they are ignored."""
        was_open, self.is_open = self.is_open, False
        if self._blocks:
            self._blocks.append(was_open)
            return
        handler = _get_handler(_SIGINT)
        if not callable(handler):
            return
        self._held, self._handler = None, handler
        try:
            self._blocks.append(False)
            _set_handler(_SIGINT, self._hold_back)
        except BaseException:
            self._blocks.clear()
            raise

    def end(self, *, may_raise: bool) -> None:
        """Leave a block. The outermost one raises the held interrupt, unless another exception is being raised."""
        if len(self._blocks) > 1:
            was_open = self._blocks.pop()
            if was_open and may_raise:
                self.raise_held()
            self.is_open = was_open
        elif self._blocks:
            self._end_last(may_raise)

    def _end_last(self, may_raise: bool) -> None:
        first = self._taken()
        try:
            if _get_handler(_SIGINT) is self._hold_back:
                _set_handler(_SIGINT, self._handler)
        finally:
            held, self._held = first or self._held, None
            self._blocks.clear()
        if held is not None and may_raise:
            self._handler(held.signum, held.frame)

    def raise_held(self) -> None:
        """Raise the held interrupt, if there is one."""
        if self._held is not None:
            self._deliver(self._held.frame)

    def _hold(self, signum: int, frame: FrameType | None) -> None:
        """Handle SIGINT while there are blocks."""
        held = self._held
        if held is not None:
            held.is_nudge_due = False
        if self.is_open:
            self.is_open = False
            self._held = held or _Held(signum, frame)
            self._deliver(frame)
            self.is_open = True
        elif held is None:
            self._held = held = _Held(signum, frame)
            with suppress(RuntimeError):  # a process that cannot start threads waits for the block's end
                _thread.start_new_thread(self._watch, (held,))
        elif not held.is_over:
            held.num_pressed += not held.is_nudged
            care = care_after(held.seconds, held.num_pressed)
            if care is not None and is_safe_point(frame, care):
                self._deliver(frame)

    def _deliver(self, frame: FrameType | None) -> None:
        """Pass the interrupt to the former handler, which usually raises it; either way it is delivered."""
        held = self._taken()
        if held is None:
            return
        try:
            self._handler(held.signum, frame)
        except BaseException as error:
            if care_after(held.seconds) is not None:
                held.loop.note(error)
            raise

    def _taken(self) -> _Held | None:
        """Release the held interrupt and return it."""
        held = self._held
        if held is not None:
            held.end()
        self._held = None
        return held

    def _watch(self, held: _Held) -> None:
        """Sample the main thread's place, and have the handler called if the thread stays there too long.

        Runs on its own thread.
        """
        while self._held is held and not held.is_over:
            time.sleep(SAMPLE_INTERVAL_S)
            held.loop.sample()
            is_due = care_after(held.seconds, held.num_pressed) is not None
            if is_due and self._held is held:
                held.nudge()


_deferral = _Deferral()


class _Deferred(AbstractContextManager[None]):
    """A block in which interrupts are held back."""

    def __enter__(self) -> None:
        if threading.get_ident() == _MAIN:
            _deferral.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if threading.get_ident() == _MAIN:
            _deferral.end(may_raise=kind is None)


class _DeferredFirmly(_Deferred):
    """A block in which interrupts are held back even inside `interrupts_allowed`."""

    def __enter__(self) -> None:
        super().__enter__()
        if threading.get_ident() == _MAIN:
            _deferral.num_firm += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if threading.get_ident() == _MAIN:
            _deferral.num_firm -= 1
        super().__exit__(kind, error, trace)


class _Allowed(AbstractContextManager[None]):
    """A block inside `interrupts_deferred` in which interrupts are raised at once."""

    def __enter__(self) -> None:
        self._is_main = threading.get_ident() == _MAIN and not _deferral.num_firm
        if self._is_main:
            _deferral.raise_held()
            self._was_open, _deferral.is_open = _deferral.is_open, _deferral._blocks != []

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_main:
            _deferral.is_open = self._was_open


_deferred, _deferred_firmly = _Deferred(), _DeferredFirmly()


def interrupts_deferred(*, firmly: bool = False) -> AbstractContextManager[None]:
    """Hold a KeyboardInterrupt back until the outermost such block ends, or for half a second.

    After that, or at a second Ctrl-C, it is raised at the next safe point, and after two seconds anywhere in the core.
    After half a second it carries a note that names the loop. Has no effect where interrupts are ignored, or in any
    thread but the main one.
    firmly: also inside `interrupts_allowed`.
    """
    return _deferred_firmly if firmly else _deferred


def interrupts_allowed() -> AbstractContextManager[None]:
    """Raise interrupts at once inside a block of `interrupts_deferred`, including one held back earlier."""
    return _Allowed()


def acquire_interruptibly(gate: threading.Lock, timeout: float = math.inf) -> bool:
    """Acquire a lock with interrupts allowed; return False after `timeout` seconds without it.

    Waits in rounds: Python handles a signal that arrives just before a system call only after that call.
    """
    deadline = time.monotonic() + timeout
    with interrupts_allowed():
        while not gate.acquire(timeout=max(0.0, min(ROUND_S, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                return False
    return True


def raise_deferred() -> None:
    """Raise the held KeyboardInterrupt, if there is one."""
    if threading.get_ident() == _MAIN:
        _deferral.raise_held()
