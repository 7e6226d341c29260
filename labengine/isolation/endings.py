"""Ends that a part brings about: what it raises to end its process. The user's Ctrl-C is none of its doing."""

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
"""What no code of a part has raised: it passes through every judgement."""


class _Thread(threading.local):
    refuses_copies = False
    num_copies = 0


_thread = _Thread()


def refuse_copies() -> None:
    """Have each copy of this process that this thread makes from now on end at once."""
    _thread.refuses_copies = True


@contextmanager
def refusing_copies() -> Iterator[None]:
    """Refuse copies of this process inside the block."""
    before, _thread.refuses_copies = _thread.refuses_copies, True
    try:
        yield
    finally:
        _thread.refuses_copies = before


def num_copies() -> int:
    """Return how many copies of this process this thread has made so far."""
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
    """Have the user's Ctrl-C raise UserInterrupt inside the block. On the main thread; others never get one."""
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
    """Return True for what code of a part has raised; False for a fault of the finder, or what is the user's doing.

    The finder raises nothing that ends a process: such an exception is a part's wherever it arises.
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
    """Return what a part's exception is, in words; of one that ends a process also which method has raised it."""
    if isinstance(error, AlarmError):
        return f"it ends the process: {text_of(error)}"
    said = named(error)
    return said if isinstance(error, Exception) else f"it ends the process: {said}, raised in {raising_method(error)}"


def named(error: BaseException) -> str:
    """Return an exception's class and text; without a text, its class."""
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def text_of(error: BaseException) -> str:
    """Return an exception's text. Its `__str__` may be a part's, and may itself raise."""
    try:
        return f"{error}"[:1000]
    except OF_THE_USER:
        raise
    except BaseException as second:
        return f"(its text cannot be made: {type(second).__name__})"
