"""When Ctrl-C may be raised: not while something changes that must change whole, at once while something waits.

Python looks for signals after almost every instruction, also inside `__enter__` and `__exit__`: a lock that is taken
and released by Python code can be left taken. So SIGINT has another handler while a lock is held or the core changes.
It keeps the interrupt, and raises it

* where the outermost block of `interrupts_deferred` ends;
* at once inside `interrupts_allowed`: a forward pass, or waiting for a lock;
* where `raise_deferred` is called, such as between two steps of a run;
* after half a second wherever the code stands, if nothing is torn there (safe_points.py): a part may be endless.

Only the main thread receives signals. In other threads all of this does nothing.
"""

from __future__ import annotations

import _thread
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from types import FrameType, TracebackType
from typing import Any

from labengine.engine.endless import LOOK_EVERY_S, StandingLoop, care_after
from labengine.engine.safe_points import is_safe_point

Handler = Callable[[int, FrameType | None], Any]

# The functions in C, without the conversion to enums around them: each is one instruction for whoever interrupts.
_set_handler: Callable[[int, Any], Any] = getattr(signal.signal, "__wrapped__", signal.signal)
_get_handler: Callable[[int], Any] = getattr(signal.getsignal, "__wrapped__", signal.getsignal)
_SIGINT = int(signal.SIGINT)
_MAIN = threading.main_thread().ident or 0
_nudge: Callable[[], object] = (
    partial(signal.pthread_kill, _MAIN, _SIGINT)
    if hasattr(signal, "pthread_kill")
    else partial(_thread.interrupt_main, signal.SIGINT)
)
"""Has the handler called on the main thread, also while that waits in a call to the system."""

NUDGE_ARRIVES_S = 0.2
"""Seconds after which a nudge has been received, or never will be."""


class _Held:
    """An interrupt that is held back."""

    __slots__ = ("frame", "is_nudge_due", "is_nudged", "is_over", "loop", "num_pressed", "signum", "since")

    def __init__(self, signum: int, frame: FrameType | None) -> None:
        self.signum, self.frame = signum, frame
        self.since, self.num_pressed = time.monotonic(), 1
        self.is_over = self.is_nudged = self.is_nudge_due = False
        self.loop = StandingLoop(_MAIN)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.since

    def nudge(self) -> None:
        """Have the handler look again, unless the interrupt is over. By the watching thread."""
        self.is_nudge_due = True
        if self.is_over:
            self.is_nudge_due = False
        else:
            self.is_nudged = True
            _nudge()

    def end(self) -> None:
        """No nudge comes any more: one that is on its way (another core may take its time) is received before this."""
        self.is_over = True
        deadline = time.monotonic() + NUDGE_ARRIVES_S
        while self.is_nudge_due and time.monotonic() < deadline:
            time.sleep(0)


class _Deferral:
    """The main thread's blocks of `interrupts_deferred`, and the interrupt that they hold back.

    While there are blocks and `is_open` is False, no instruction here can be interrupted. Elsewhere every call can.
    """

    def __init__(self) -> None:
        self.is_open = False
        """True where an interrupt is raised at once, although there are blocks."""
        self.num_firm = 0
        """Blocks, among them, in which nothing opens."""
        self._blocks: list[bool] = []
        """Per block, innermost last, `is_open` as it was outside of it."""
        self._held: _Held | None = None
        self._handler: Handler = signal.default_int_handler
        self._hold_back = self._hold

    def begin(self) -> None:
        """Hold interrupts back from here on. Does nothing where they are ignored."""
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
        """Leave a block. The outermost one raises what was held back, unless something else is being raised."""
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
        """Raise the interrupt that is held back, if there is one."""
        if self._held is not None:
            self._deliver(self._held.frame)

    def _hold(self, signum: int, frame: FrameType | None) -> None:
        """The handler of SIGINT while there are blocks."""
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
        """Have the interrupt raised by the handler that was there before. One that does not raise has had it."""
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
        """Return the interrupt, held back no more."""
        held = self._held
        if held is not None:
            held.end()
        self._held = None
        return held

    def _watch(self, held: _Held) -> None:
        """On a thread of its own: see where the main thread stands, and have it raise when that has lasted too long."""
        while self._held is held and not held.is_over:
            time.sleep(LOOK_EVERY_S)
            held.loop.look()
            is_due = care_after(held.seconds, held.num_pressed) is not None
            if is_due and self._held is held:
                held.nudge()


_deferral = _Deferral()


class _Deferred(AbstractContextManager[None]):
    """A block that holds interrupts back."""

    def __enter__(self) -> None:
        if threading.get_ident() == _MAIN:
            _deferral.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if threading.get_ident() == _MAIN:
            _deferral.end(may_raise=kind is None)


class _DeferredFirmly(_Deferred):
    """The same, also where they are allowed otherwise."""

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
    """A block that does not, inside one that does."""

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
    """Hold a KeyboardInterrupt back until the outermost such block ends, but no more than half a second.

    After that it is raised where nothing is torn, with a note that names the loop. A second Ctrl-C is raised at once.
    Where interrupts are ignored, and in any thread but the main one, this does nothing.
    firmly: also where `interrupts_allowed` says otherwise.
    """
    return _deferred_firmly if firmly else _deferred


def interrupts_allowed() -> AbstractContextManager[None]:
    """Inside a block of `interrupts_deferred`: raise an interrupt at once, also one that was held back before."""
    return _Allowed()


def raise_deferred() -> None:
    """Raise the KeyboardInterrupt that is held back, if there is one."""
    if threading.get_ident() == _MAIN:
        _deferral.raise_held()
