"""Exceptions with which a part ends its process, kept apart from the user's Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from labengine.engine.failure import raising_method
from labengine.engine.safe_points import is_users
from labengine.isolation.limits import AlarmError, EndlessOperationError, SearchEndedError


class UserInterrupt(KeyboardInterrupt):
    """The user's Ctrl-C inside `interrupts_named`. Another KeyboardInterrupt there was raised by a part."""


OF_THE_USER = (UserInterrupt, SearchEndedError)
"""Exceptions that no part raised: no judgement catches them."""


class _Thread(threading.local):
    refuses_copies = False
    num_copies = 0


_thread = _Thread()


def refuse_copies() -> None:
    """From now on, end each copy of this process that this thread makes at once."""
    _thread.refuses_copies = True


@contextmanager
def refusing_copies() -> Iterator[None]:
    """Refuse copies of this process in the block."""
    before, _thread.refuses_copies = _thread.refuses_copies, True
    try:
        yield
    finally:
        _thread.refuses_copies = before


def num_copies() -> int:
    """Return the number of copies of this process that this thread has made."""
    return _thread.num_copies


def _note_copy() -> None:
    _thread.num_copies += 1


def _end_copy() -> None:
    if _thread.refuses_copies:
        os._exit(0)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_parent=_note_copy, after_in_child=_end_copy)


@contextmanager
def interrupts_named() -> Iterator[None]:
    """Raise UserInterrupt for the user's Ctrl-C in the block, on the main thread; others never receive one."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    handler: Any = before

    def interrupt(number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except UserInterrupt:
            raise
        except KeyboardInterrupt:
            raise UserInterrupt from None

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def is_of_a_part(error: BaseException) -> bool:
    """Return True for an exception from a part's code; False for the finder's own faults and the user's actions.

    The finder itself never raises an exception that ends a process, so such an exception always comes from a part.
    """
    if isinstance(error, OF_THE_USER):
        return False
    if not isinstance(error, (Exception, EndlessOperationError)):
        return True
    traceback = error.__traceback__
    while traceback is not None:
        if is_users(traceback.tb_frame):
            return True
        traceback = traceback.tb_next
    return False


def said_of(error: BaseException) -> str:
    """Describe a part's exception; for one that ends the process, also name the method that raised it."""
    if isinstance(error, AlarmError):
        return f"it ends the process: {text_of(error)}"
    said = named(error)
    return said if isinstance(error, Exception) else f"it ends the process: {said}, raised in {raising_method(error)}"


def named(error: BaseException) -> str:
    """Return an exception's class and text, or only its class if it has no text."""
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def text_of(error: BaseException) -> str:
    """Return an exception's text. Its `__str__` may be a part's, and may itself raise."""
    try:
        return f"{error}"[:1000]
    except OF_THE_USER:
        raise
    except BaseException as second:
        return f"(its __str__ raised {type(second).__name__})"
