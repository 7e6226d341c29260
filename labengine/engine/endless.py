"""Code that does not end: how long to wait for it, and in which loop it is."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from itertools import takewhile
from operator import is_
from threading import Lock
from types import FrameType

from labengine.engine.safe_points import Care, is_decision, is_users, short_path

PATIENCE_S = 0.5
"""Seconds that a step may continue after it was asked to end."""

SAMPLE_INTERVAL_S = 0.005

_one_at_a_time = Lock()


def care_after(seconds: float, num_presses: int = 1) -> Care | None:
    """Return the care to take when ending code `seconds` after it was asked to end; None: keep waiting.

    After a second request, do not wait.
    """
    if seconds > 4 * PATIENCE_S:
        return Care.OF_LOCKS
    if seconds > 1.5 * PATIENCE_S or num_presses > 1:
        return Care.OF_THE_CORE
    return Care.OF_PARTS if seconds > PATIENCE_S else None


def frame_of(thread_id: int) -> FrameType | None:
    """Return the frame that a thread executes; None for a thread that has ended. Not for the main thread's signal
    handlers.

    CPython lists the frames under a lock that it also takes when a thread begins or ends. A garbage collection in
    between can switch to another thread, for example in a tensor's destructor. If that thread requests the lock, all
    threads are blocked forever (CPython issue 106883), so the collector is disabled during the call.
    """
    with _one_at_a_time:
        is_collecting = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames().get(thread_id)
        finally:
            if is_collecting:
                gc.enable()


class EndlessLoop:
    """Watches a thread that does not return from a call, and the user's functions seen inside that call."""

    def __init__(self, thread_id: int) -> None:
        self._thread_id = thread_id
        self._common_frames: list[FrameType] | None = None
        self._place = ""
        self._called: dict[str, None] = {}

    def sample(self) -> None:
        """Sample the thread's stack, and keep the frames that were there in every sample."""
        stack = _stack(frame_of(self._thread_id))
        common = stack if self._common_frames is None else list(_common(self._common_frames, stack))
        if common:
            self._place = place_of(common[-1], common[-1].f_lineno)
        inside = (frame for frame in stack[len(common) :] if is_users(frame))
        self._called.update(dict.fromkeys(place_of(frame, frame.f_code.co_firstlineno) for frame in inside))
        self._common_frames = common

    def note(self, error: BaseException) -> None:
        """Add the loop's place to an error's notes, and forget the frames."""
        self._common_frames = None
        if self._place:
            error.add_note(f"It had not returned after {PATIENCE_S} s. It was in {self._place}.")
        if self._called:
            error.add_note(f"Repeatedly called from there: {', '.join(self._called)}.")


def _stack(frame: FrameType | None) -> list[FrameType]:
    """Return the frames of deciding code, outermost first."""
    found = []
    while frame is not None:
        if is_users(frame) or is_decision(frame):
            found.append(frame)
        frame = frame.f_back
    return found[::-1]


def _common(one: list[FrameType], other: list[FrameType]) -> Iterator[FrameType]:
    return (frame for frame, _ in takewhile(lambda pair: is_(*pair), zip(one, other, strict=False)))


def place_of(frame: FrameType, line: int) -> str:
    """Return a line of a frame's code as "Class.method (file:line)"."""
    return f"{frame.f_code.co_qualname} ({short_path(frame.f_code.co_filename)}:{line})"
