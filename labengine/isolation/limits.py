"""Limits of what foreign code takes: time and memory."""

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
from labengine.isolation.looks import LOOK_S, Looks

OPERATION_S = 1.0
"""Processor seconds of one operation: the finder's are over in a thousandth of that."""
MEMORY_BYTES = 2**29
"""Memory that a process may take beyond what it has when it begins."""
RESERVE_BYTES = 2**26
"""Memory beyond that, for judging and telling what code has done that filled its memory and keeps it."""
_memory: dict[int, int] = {}
"""The limits of this process, by resource's numbers; none in one that is not limited."""


class EndlessOperationError(BaseException):
    """Raised inside an operation that took too long. No Exception: a part's `except Exception` must not catch it."""


class AlarmError(BaseException):
    """Raised in place of the end of the process that an alarm of a part's would have been."""


class SearchEndedError(BaseException):
    """Raised inside an operation that has not come back when a search in this process has to end."""


MONITORED_S = 5.0
"""Seconds of an operation in a browser's Python, which is slower, and slower still while it is monitored."""
_deadlines: list[float] = []
"""When the operation that is monitored has to be over; none outside of one."""


class _Limited(Looks):
    """A block of `operations_end`: its thread, its last moment, and the looks at its operation."""

    def __init__(self, thread: int, last: float) -> None:
        super().__init__()
        self.thread, self.last = thread, last


_limited: list[_Limited] = []
"""The blocks of `operations_end`, the innermost last."""


@contextmanager
def operations_end(last: float = float("inf")) -> Iterator[None]:
    """Have `restart_clock` limit operations inside the block: in processor time, and one that sleeps by looks.

    last: a moment (monotonic) after which SearchEndedError is raised in one. On the main thread of a Unix process; on
    another, on Windows, and inside a call into C that never comes back to Python, there is no limit. In a browser's
    Python the clock is looked at between instructions: a part that sleeps there is not ended.
    """
    if not _can_limit():
        with _monitored():
            yield
        return
    before = signal.signal(signal.SIGVTALRM, _end), signal.signal(signal.SIGALRM, _look)
    timer = signal.setitimer(signal.ITIMER_REAL, LOOK_S, LOOK_S)
    _limited.append(_Limited(threading.get_ident(), last))
    try:
        yield
    except MemoryError:
        open_reserve()
        raise
    finally:
        _limited.pop()
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGVTALRM, before[0])
        signal.signal(signal.SIGALRM, before[1])


@contextmanager
def ends_soon() -> Iterator[None]:
    """Raise EndlessOperationError in the block when it takes longer than an operation may."""
    with operations_end():
        restart_clock()
        yield


def limit_memory() -> None:
    """Have this process raise MemoryError when it takes MEMORY_BYTES more than it has now. On Linux.

    What counts is private memory that can be written to. A limit of all addresses (RLIMIT_AS) counts the stack, too,
    and a stack that cannot grow ends the process by a signal; it is set further off, for memory that is shared.
    """
    import resource

    with open("/proc/self/statm") as file:
        addresses, *_, data, _ = (int(pages) * resource.getpagesize() for pages in file.read().split())
    _memory[resource.RLIMIT_DATA] = data + MEMORY_BYTES
    _memory[resource.RLIMIT_AS] = addresses + 2 * MEMORY_BYTES
    _set_memory()


def open_reserve() -> None:
    """Let a process whose memory is full have some more: enough to say so."""
    for kind in _memory:
        _memory[kind] += RESERVE_BYTES
    if _memory:
        _set_memory()


def _set_memory() -> None:
    import resource

    for kind, num_bytes in _memory.items():
        with suppress(ValueError, OSError):
            resource.setrlimit(kind, (num_bytes, resource.RLIM_INFINITY))


def restart_clock() -> None:
    """Begin an operation: it has OPERATION_S from now on."""
    if _deadlines:
        _deadlines[-1] = time.monotonic() + MONITORED_S
    elif _limited and _limited[-1].thread == threading.get_ident():
        _limited[-1].restart()
        signal.setitimer(signal.ITIMER_VIRTUAL, OPERATION_S, OPERATION_S)


def refuse_alarm() -> None:
    """Raise AlarmError if an alarm was set in this block, in place of the looks."""
    if _limited and _limited[-1].thread == threading.get_ident() and not signal.getitimer(signal.ITIMER_REAL)[1]:
        signal.setitimer(signal.ITIMER_REAL, LOOK_S, LOOK_S)
        raise AlarmError("it sets an alarm (SIGALRM)")


def can_fork() -> bool:
    """Return True where a process can be copied with all its classes: on Linux."""
    return sys.platform.startswith("linux")


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
    raise EndlessOperationError(users_place(frame))


def _look(_: int, frame: FrameType | None) -> None:
    """Look at an operation: whether it sleeps, and whether the search has to end."""
    if not _limited:
        return
    refuse_alarm()
    limited = _limited[-1]
    is_asleep = limited.is_asleep_for_good()
    if time.monotonic() > limited.last:
        limited.last = float("inf")
        raise SearchEndedError(users_place(frame))
    if is_asleep:
        raise EndlessOperationError(f"{users_place(frame)}, and waits for something that never comes")


def users_place(frame: FrameType | None) -> str:
    """Return where code that is not ours stands, in the innermost of its frames; without any, the frame's own place."""
    inner = frame
    while frame is not None and not is_users(frame):
        frame = frame.f_back
    frame = frame or inner
    return "" if frame is None else place_of(frame, frame.f_lineno)
