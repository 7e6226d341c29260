"""Interrupting a step that does not end, in a thread that Ctrl-C does not reach."""

from __future__ import annotations

import _thread
import ctypes
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from labengine.engine.endless import SAMPLE_INTERVAL_S, EndlessLoop, care_after, frame_of
from labengine.engine.safe_points import Care, is_in_step, is_safe_point

T = TypeVar("T")

_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
_raise_in.argtypes, _raise_in.restype = (ctypes.c_ulong, ctypes.py_object), ctypes.c_int


class UnitOfWork:
    """The current call of a thread. Another thread may have a step in it interrupted."""

    def __init__(self) -> None:
        self._number = 0
        self._thread_id: int | None = None
        self._loop: EndlessLoop | None = None

    def do(self, call: Callable[[], T]) -> T:
        """Call, on the thread whose work it is. The notes of an interrupt name the loop that it ended."""
        self._number += 1
        self._thread_id = threading.get_ident()
        try:
            return call()
        except KeyboardInterrupt as error:
            if self._loop is not None:
                self._loop.note(error)
            raise
        finally:
            self._thread_id = self._loop = None

    def hurry(self) -> None:
        """Interrupt a step of this call if it has not ended when the patience has run out. Does not wait."""
        if self._thread_id is not None and self._loop is None:
            _thread.start_new_thread(self._watch, (self._number, self._thread_id))

    def _watch(self, number: int, thread_id: int) -> None:
        since, loop, is_struck = time.monotonic(), EndlessLoop(thread_id), False
        while self._number == number and self._thread_id is not None:
            time.sleep(SAMPLE_INTERVAL_S)
            if not is_struck:  # afterwards the thread is on its way out of the loop
                loop.sample()
            care = care_after(time.monotonic() - since)
            if care is not None and self._number == number:
                self._loop = loop
                if _interrupt(thread_id, care):
                    is_struck = True
                    since = time.monotonic()  # code that goes on in spite of it gets another one


def _interrupt(thread_id: int, care: Care) -> bool:
    """Raise a KeyboardInterrupt in a step on that thread, if it is at a safe point; return True if so."""
    number, error = ctypes.c_ulong(thread_id), ctypes.py_object(KeyboardInterrupt)
    frame = frame_of(thread_id)
    if frame is None:
        return False
    at = frame.f_lasti
    if not (is_in_step(frame) and is_safe_point(frame, care) and frame_of(thread_id) is frame):
        return False
    # From here to the call no instruction lets another thread run: what has not moved is interrupted where it stands.
    return frame.f_lasti == at and _raise_in(number, error) == 1
