"""Memory shared with a copy of this process: a record that remains if the copy ends without an answer."""

from __future__ import annotations

from dataclasses import dataclass
from types import FrameType
from typing import Literal

from labengine.engine.endless import place_of
from labengine.engine.safe_points import is_users

_PLACE_AT, _TEXT_AT, _TEXT_BYTES = 16, 528, 512
"""Offsets of the texts in a board's memory, and their maximum length."""
_DATA_AT, _DATA_BYTES = 1040, 1 << 16

Why = Literal["exit", "endless", "asleep", "memory", "late", "killed", "failed"]


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Why a call has no answer. reason: a clause whose "it" is the called code. begun, run: the run it had begun."""

    why: Why
    reason: str
    begun: int = 0
    run: str = ""


class Board:
    """A process's notes in memory that outlives it: the number of its current run, and its place in the code."""

    def __init__(self) -> None:
        from mmap import mmap  # imported late: Python in a browser has none

        self._memory = mmap(-1, _DATA_AT + _DATA_BYTES)

    def begin(self, number: int, text: str = "") -> None:
        """Note that a run begins. number: counted from 1. text: describes the run."""
        self._memory[:8] = number.to_bytes(8, "little")
        self._write(_TEXT_AT, text)

    @property
    def run(self) -> str:
        """Text of the run begun last."""
        return self._text(_TEXT_AT)

    @property
    def begun(self) -> int:
        """Number of the run begun last; 0 before the first."""
        return int.from_bytes(self._memory[:8], "little")

    def finish(self) -> None:
        """Note that the call has returned."""
        self._memory[8] = 1

    @property
    def is_finished(self) -> bool:
        """True if the call has returned."""
        return bool(self._memory[8])

    def note_place(self, frame: FrameType, event: str, _: object) -> None:
        """Note the current place in a part's code, as a profile function (sys.setprofile)."""
        if event in ("call", "c_call") and is_users(frame):
            self._write(_PLACE_AT, place_of(frame, frame.f_lineno))

    @property
    def place(self) -> str:
        """Last place noted; empty if none was."""
        return self._text(_PLACE_AT)

    def keep(self, data: bytes) -> None:
        """Keep data of up to 64 KiB; larger data is ignored."""
        if len(data) <= _DATA_BYTES:
            self._memory[_DATA_AT : _DATA_AT + len(data)] = data

    @property
    def kept(self) -> bytes:
        """Data kept last, followed by leftover bytes of older data."""
        return self._memory[_DATA_AT:]

    def no_answer(self, why: Why, reason: str) -> NoAnswer:
        """Return a NoAnswer with the current run."""
        return NoAnswer(why, reason, self.begun, self.run)

    def _write(self, at: int, text: str) -> None:
        self._memory[at : at + _TEXT_BYTES] = text.encode(errors="replace")[:_TEXT_BYTES].ljust(_TEXT_BYTES, b"\0")

    def _text(self, at: int) -> str:
        return self._memory[at : at + _TEXT_BYTES].rstrip(b"\0").decode(errors="replace")
