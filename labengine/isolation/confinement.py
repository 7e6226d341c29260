"""Confinement of a process that runs a user's code, to protect the processes that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress
from typing import Any

_PR_SET_PDEATHSIG = 1


class OutsideSignalError(BaseException):
    """Raised instead of sending a signal to another session. Not an Exception, so a part cannot catch it as one."""


def confine() -> None:
    """Move this process to a new session, for good, so that group signals stay inside, and refuse signals to others.

    A terminal or shell can no longer end it.
    """
    with suppress(PermissionError):  # it already leads a group
        os.setsid()
    sys.addaudithook(_refuse_outside)


def end_with_starter() -> None:
    """Have this process end with the thread that started it. On Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end_session(pid: int) -> None:
    """Kill the remaining processes of a session begun by `confine`."""
    with suppress(OSError):  # the session has not begun, or no process is left
        os.killpg(pid, signal.SIGKILL)


def _refuse_outside(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("os.kill", "os.killpg") and not _is_inside(arguments[0]):
        raise OutsideSignalError(f"it sends signal {int(arguments[1])} to another process")


def _is_inside(number: int) -> bool:
    """Return True for a process or a group (which may be a negative number) of this session."""
    with suppress(OSError):
        return os.getsid(abs(number)) == os.getsid(0)
    return False
