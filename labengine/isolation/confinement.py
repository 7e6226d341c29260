"""What keeps a process that runs somebody's code away from the processes that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress
from typing import Any

_PR_SET_PDEATHSIG = 1


class OutsideSignalError(BaseException):
    """Raised in place of a signal to another session. No Exception: a part's `except Exception` must not catch it."""


def confine() -> None:
    """Give this process a session, where its group's signals stay, and refuse its signals to others. For good.

    A terminal and a shell no longer reach it: on Linux it ends with the thread that started it.
    """
    with suppress(PermissionError):  # it was started by hand, and leads a group
        os.setsid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    sys.addaudithook(_refuse_outside)


def end_session(pid: int) -> None:
    """Kill what is left of a session that `confine` began."""
    with suppress(OSError):  # it has not begun, or nothing is left
        os.killpg(pid, signal.SIGKILL)


def _refuse_outside(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("os.kill", "os.killpg") and not _is_inside(arguments[0]):
        raise OutsideSignalError(f"it sends signal {int(arguments[1])} to another process")


def _is_inside(number: int) -> bool:
    """Return True for a process or a group (also a negative number) of this session."""
    with suppress(OSError):
        return os.getsid(abs(number)) == os.getsid(0)
    return False
