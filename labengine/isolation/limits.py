"""Limits on the time that foreign code uses."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from labengine.engine.endless import place_of
from labengine.engine.safe_points import is_users
from labengine.isolation.looks import LOOK_S, Looks
from labengine.isolation.memory_limit import open_reserve

OPERATION_S = 1.0
"""Processor seconds for one operation; the finder's own take a thousandth of that."""


class EndlessOperationError(BaseException):
    """Raised inside an operation that took too long. Not an Exception, so a part cannot catch it as one."""


class AlarmError(BaseException):
    """Raised if a part sets an alarm, which would otherwise end the process."""


class SearchEndedError(BaseException):
    """Raised inside an operation that is still running when a search in this process has to end."""


MONITORED_S = 5.0
"""Seconds for one operation of Python in a browser, which is slower, and slower still while monitored."""
_deadlines: list[float] = []
"""Deadline of the monitored operation, if there is one."""


class _Limited(Looks):
    """A block of `operations_end`: its thread, its deadline, and the looks at its operation."""

    def __init__(self, thread: int, last: float) -> None:
        super().__init__()
        self.thread, self.last = thread, last


_limited: list[_Limited] = []
"""Blocks of `operations_end`, innermost last."""


@contextmanager
def operations_end(last: float = float("inf")) -> Iterator[None]:
    """Let `restart_clock` limit operations in the block: by processor time, and by looks for one that sleeps.

    last: a moment (monotonic) after which an operation gets SearchEndedError. Limits apply only on the main thread of a
    Unix process, and not inside a call into C that never returns to Python. Python in a browser checks the clock
    between instructions, so a sleeping part is not ended there.
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
    """Raise EndlessOperationError in a block that takes longer than one operation may."""
    with operations_end():
        restart_clock()
        yield


def restart_clock() -> None:
    """Begin an operation, which has OPERATION_S from now on."""
    if _deadlines:
        _deadlines[-1] = time.monotonic() + MONITORED_S
    elif _limited and _limited[-1].thread == threading.get_ident():
        _limited[-1].restart()
        signal.setitimer(signal.ITIMER_VIRTUAL, OPERATION_S, OPERATION_S)


def refuse_alarm() -> None:
    """Raise AlarmError if an alarm set in this block has replaced the looks."""
    if _limited and _limited[-1].thread == threading.get_ident() and not signal.getitimer(signal.ITIMER_REAL)[1]:
        signal.setitimer(signal.ITIMER_REAL, LOOK_S, LOOK_S)
        raise AlarmError("it sets an alarm (SIGALRM)")


def can_fork() -> bool:
    """Return True where a process can be copied with all its classes, that is, on Linux."""
    return sys.platform.startswith("linux")


def _can_limit() -> bool:
    has_timers = hasattr(signal, "setitimer") and sys.platform != "emscripten"
    return has_timers and threading.current_thread() is threading.main_thread()


@contextmanager
def _monitored() -> Iterator[None]:
    """Check the clock at each backward jump and function call: for Python in a browser, which has no signals."""
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
    raise EndlessOperationError(where_it_is(frame))


def _look(_: int, frame: FrameType | None) -> None:
    """Check if an operation sleeps, and if the search has to end."""
    if not _limited:
        return
    refuse_alarm()
    limited = _limited[-1]
    is_asleep = limited.is_asleep_for_good()
    if time.monotonic() > limited.last:
        limited.last = float("inf")
        raise SearchEndedError(where_it_is(frame))
    if is_asleep:
        raise EndlessOperationError(where_it_is(frame, "is waiting for something that never comes"))


def where_it_is(frame: FrameType | None, doing: str = "") -> str:
    """Return a clause with the place of the user's innermost frame. Without one it blames nobody's code.

    doing: a verb phrase that says why the code does not return.
    """
    while frame is not None and not is_users(frame):
        frame = frame.f_back
    place = "" if frame is None else f"is in {place_of(frame, frame.f_lineno)}"
    return f"it {', and '.join(filter(None, (place, doing))) or 'had not returned in time'}"
