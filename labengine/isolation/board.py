"""What a copy of this process leaves behind if it ends without a word: memory that both of them see."""

from __future__ import annotations

from dataclasses import dataclass
from types import FrameType
from typing import Literal

from labengine.engine.endless import place_of
from labengine.engine.safe_points import is_users

_PLACE_AT, _TEXT_AT, _TEXT_BYTES = 16, 528, 512
"""Of a board's memory: where its texts begin, and how long they may be."""
_DATA_AT, _DATA_BYTES = 1040, 1 << 16

Why = Literal["exit", "endless", "asleep", "memory", "late", "killed", "failed"]


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Why a call has no answer. reason: with "it" for the code that was called; begun, run: what it had begun."""

    why: Why
    reason: str
    begun: int = 0
    run: str = ""


class Board:
    """What a process writes down in memory that outlives it: the number of its present run, and where it is."""

    def __init__(self) -> None:
        from mmap import mmap  # for processes only: a browser's Python has none

        self._memory = mmap(-1, _DATA_AT + _DATA_BYTES)

    def begin(self, number: int, text: str = "") -> None:
        """Note that a run begins, counted from 1. text: says which."""
        self._memory[:8] = number.to_bytes(8, "little")
        self._write(_TEXT_AT, text)

    @property
    def run(self) -> str:
        """The text of the run that was begun last."""
        return self._text(_TEXT_AT)

    @property
    def begun(self) -> int:
        """The run that was begun last; 0 before the first."""
        return int.from_bytes(self._memory[:8], "little")

    def finish(self) -> None:
        """Note that the call has come back."""
        self._memory[8] = 1

    @property
    def is_finished(self) -> bool:
        """True if the call has come back."""
        return bool(self._memory[8])

    def note_place(self, frame: FrameType, event: str, _: object) -> None:
        """Note where a part's code stands: a profiler's function (sys.setprofile)."""
        if event in ("call", "c_call") and is_users(frame):
            self._write(_PLACE_AT, place_of(frame, frame.f_lineno))

    @property
    def place(self) -> str:
        """The last place noted; empty without one."""
        return self._text(_PLACE_AT)

    def keep(self, data: bytes) -> None:
        """Keep data, unless it is larger than 64 KiB."""
        if len(data) <= _DATA_BYTES:
            self._memory[_DATA_AT : _DATA_AT + len(data)] = data

    @property
    def kept(self) -> bytes:
        """The data kept last; what follows it is older."""
        return self._memory[_DATA_AT:]

    def no_answer(self, why: Why, reason: str) -> NoAnswer:
        """Return why there is no answer, with the present run."""
        return NoAnswer(why, reason, self.begun, self.run)

    def _write(self, at: int, text: str) -> None:
        self._memory[at : at + _TEXT_BYTES] = text.encode(errors="replace")[:_TEXT_BYTES].ljust(_TEXT_BYTES, b"\0")

    def _text(self, at: int) -> str:
        return self._memory[at : at + _TEXT_BYTES].rstrip(b"\0").decode(errors="replace")
