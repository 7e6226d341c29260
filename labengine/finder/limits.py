"""Limits of a search: processor time for each operation, memory for each process, bytes for a table of states."""

from __future__ import annotations

import signal
import threading
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


_limited: list[int] = []
"""The threads that are inside `operations_end`, the innermost last."""


@contextmanager
def operations_end() -> Iterator[None]:
    """Have `restart_clock` limit operations inside the block. On the main thread of a Unix process; else no limit."""
    if not _can_limit():
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
    if _limited and _limited[-1] == threading.get_ident():
        signal.setitimer(signal.ITIMER_VIRTUAL, OPERATION_S, OPERATION_S)


def _can_limit() -> bool:
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()


def _end(_: int, frame: FrameType | None) -> None:
    inner = frame
    while frame is not None and not is_users(frame):
        frame = frame.f_back
    frame = frame or inner
    raise EndlessOperationError("" if frame is None else place_of(frame, frame.f_lineno))
