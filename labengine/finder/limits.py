"""Limits of a search: processor time for each operation, memory for each process, bytes for a table of states."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from labengine.engine.endless import place_of
from labengine.engine.safe_points import is_users

OPERATION_S = 1.0
"""Processor seconds of one operation: the finder's are over in a thousandth of that."""

MEMORY_BYTES = 2**29
"""Memory that a process of a search may take beyond what it has when it begins."""
NUM_STEPS = 400
"""Steps after which a run without new requests counts as one without an end; the finder's need some dozens."""
SHRINKING_S = 8.0
"""Seconds for shrinking a finding."""
TABLE_BYTES = 2**27
"""Bytes of a complete search's states: a quarter of a process's memory, because tables are copied as they grow."""


class EndlessOperationError(BaseException):
    """Raised inside an operation that took too long. No Exception: a part's `except Exception` must not catch it."""


MONITORED_S = 5.0
"""Seconds of an operation in a browser's Python, which is slower, and slower still while it is monitored."""
_deadlines: list[float] = []
"""When the operation that is monitored has to be over; none outside of one."""

_limited: list[int] = []
"""The threads that are inside `operations_end`, the innermost last."""


@contextmanager
def operations_end() -> Iterator[None]:
    """Have `restart_clock` limit operations inside the block. On the main thread of a Unix process; else no limit."""
    if not _can_limit():
        with _monitored():
            yield
        return
    before = signal.signal(signal.SIGVTALRM, _end)
    _limited.append(threading.get_ident())
    try:
        yield
    finally:
        _limited.pop()
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def ends_soon() -> Iterator[None]:
    """Raise EndlessOperationError in the block when it takes longer than an operation may."""
    with operations_end():
        restart_clock()
        yield


def limit_memory() -> None:
    """Have this process raise MemoryError when it takes MEMORY_BYTES more than it has now. On Linux."""
    import resource

    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, resource.RLIM_INFINITY))


def restart_clock() -> None:
    """Begin an operation: it has OPERATION_S from now on."""
    if _deadlines:
        _deadlines[-1] = time.monotonic() + MONITORED_S
    elif _limited and _limited[-1] == threading.get_ident():
        signal.setitimer(signal.ITIMER_VIRTUAL, OPERATION_S, OPERATION_S)


def _can_limit() -> bool:
    has_timers = hasattr(signal, "setitimer") and sys.platform != "emscripten"
    return has_timers and threading.current_thread() is threading.main_thread()


@contextmanager
def _monitored() -> Iterator[None]:
    """Look at the clock wherever code jumps back or a function begins: for a browser's Python, which has no signals."""
    monitoring = getattr(sys, "monitoring", None)
    if sys.platform != "emscripten" or monitoring is None or _deadlines:
        yield
        return
    tool, events = monitoring.PROFILER_ID, monitoring.events.JUMP | monitoring.events.PY_START
    monitoring.use_tool_id(tool, "labengine")
    monitoring.register_callback(tool, monitoring.events.JUMP, _look_at_clock)
    monitoring.register_callback(tool, monitoring.events.PY_START, _look_at_clock)
    _deadlines.append(time.monotonic() + MONITORED_S)
    monitoring.set_events(tool, events)
    try:
        yield
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)
        _deadlines.pop()


def _look_at_clock(*_: object) -> None:
    if _deadlines and time.monotonic() > _deadlines[-1]:
        _deadlines[-1] = float("inf")  # the handlers of the error are not ended too
        _end(0, sys._getframe(1))


def _end(_: int, frame: FrameType | None) -> None:
    inner = frame
    while frame is not None and not is_users(frame):
        frame = frame.f_back
    frame = frame or inner
    raise EndlessOperationError("" if frame is None else place_of(frame, frame.f_lineno))
