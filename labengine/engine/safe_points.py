"""Where an exception may strike code that never asked for one, such as a step that does not end.

An exception between a change of the core and its journal entry would leave one half. So it is raised where a part could
have raised by itself: as a function of the core begins, or in the code of somebody else (a part, a listener, a
connector). Never inside what follows the engine by its events (checks, timeline, figures), in the middle of a rollback,
or while a lock changes hands.
"""

from __future__ import annotations

import dis
import sysconfig
from enum import IntEnum
from functools import cache
from pathlib import Path
from types import FrameType

_ROOT = str(Path(__file__).parents[1])
_STDLIB = sysconfig.get_paths()["stdlib"]

_FOLLOWERS = ("check/", "timeline.py", "fold.py", "trace/", "session/stats.py", "session/history/inputs.py")
"""They hear of changes, and would miss one. (A runner that is watched computes: it is none of them.)"""
_CORE = ("core/",)
_NOT_UNDONE = ("core/journal.py", "core/state.py")
_ENGINES = ("engine/engine.py", "engine/ahead.py")
_STEPS = ("phases", "_attempt", "step", "_schedule", "_forward", "_update", "_anticipate", "_run_ahead")
"""Methods of an engine during which whatever fails is taken back."""
_COMPUTING = ("engine/model_runner.py",)
"""A forward pass takes its time, and ends by itself."""


class Care(IntEnum):
    """What an exception from outside must not tear, at least."""

    OF_LOCKS = 1
    """Locks only: whoever waits this long prefers a broken lab to one that hangs."""
    OF_THE_CORE = 2
    """The core: a call in a part's own code may be cut off."""
    OF_PARTS = 3
    """Parts too: between two rounds of their loops, and where a function begins."""


def is_safe_point(frame: FrameType | None, care: Care) -> bool:
    """Return True when an exception may be raised at the instruction at which a thread has been interrupted."""
    if frame is None:
        return False
    if is_ours(frame):
        may_stand = _begins_in_core(frame) or (care is Care.OF_LOCKS and _room(frame).startswith(_CORE))
    else:
        may_stand = _is_called_by_users(frame) and (care < Care.OF_PARTS or _is_between_rounds(frame))
    return may_stand and (care is Care.OF_LOCKS or _may_unwind(frame))


def _begins_in_core(frame: FrameType) -> bool:
    room = _room(frame)
    return room.startswith(_CORE) and not room.startswith(_NOT_UNDONE) and _instruction(frame) == ("RESUME", 0)


def _is_between_rounds(frame: FrameType) -> bool:
    name, _ = _instruction(frame)
    return name == "RESUME" or "JUMP_BACKWARD" in name


def _instruction(frame: FrameType) -> tuple[str, int]:
    code, at = frame.f_code.co_code, frame.f_lasti
    return (dis.opname[code[at]], code[at + 1]) if at >= 0 else ("", 0)


def _is_called_by_users(frame: FrameType | None) -> bool:
    """Not so for the standard library's functions that ours call, such as those around a generator."""
    while frame is not None and _is_stdlib(frame):
        frame = frame.f_back
    return frame is not None and not is_ours(frame)


def _may_unwind(frame: FrameType | None) -> bool:
    """Return True when all between here and the step, or the session's call, can be ended by an exception."""
    while frame is not None:
        room = _room(frame)
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return False  # modules of an import that was cut off stay broken
        if room.startswith(_FOLLOWERS + _COMPUTING) and not room.endswith("watched_runner.py"):
            return False
        if room in _ENGINES:
            return frame.f_code.co_name in _STEPS
        if room.startswith("session/"):
            return True
        frame = frame.f_back
    return True


def is_in_step(frame: FrameType | None) -> bool:
    """Return True while an engine takes a step there, less its forward pass, and in what the step calls."""
    while frame is not None:
        room = _room(frame)
        if room in _ENGINES and frame.f_code.co_name in _STEPS:
            return True
        if room.startswith(_COMPUTING):
            return False
        frame = frame.f_back
    return False


# -- whose code it is --------------------------------------------------------------------------------------------------


def is_ours(frame: FrameType) -> bool:
    """Return True in this package, and in the widgets'."""
    return _owner(frame.f_code.co_filename)[0] == "ours"


def is_users(frame: FrameType) -> bool:
    """Return True in a scenario, and in code that is not ours, the standard library's or installed beside it."""
    return _owner(frame.f_code.co_filename)[0] == "users"


def is_decision(frame: FrameType) -> bool:
    """Return True in the core and in the engine that calls it."""
    return _room(frame).startswith((*_CORE, *_ENGINES))


def short_path(filename: str) -> str:
    """Return a file's path from the package on; of a notebook's cell, that it is one; of any other file, its name."""
    room = _owner(filename)[1]
    if room:
        return f"labengine/{room}"
    return "a cell" if "ipykernel_" in filename or filename.startswith("<") else Path(filename).name


def _is_stdlib(frame: FrameType) -> bool:
    return _owner(frame.f_code.co_filename)[0] == "stdlib"


def _room(frame: FrameType) -> str:
    return _owner(frame.f_code.co_filename)[1]


@cache
def _owner(filename: str) -> tuple[str, str]:
    """Whose code a file is, and for ours its path in the package."""
    if filename.startswith(_ROOT):
        room = filename[len(_ROOT) + 1 :].replace("\\", "/")
        return "users" if room.startswith("scenarios/") else "ours", room
    if "labengine_widgets" in Path(filename).parts:
        return "ours", "widgets"
    if "site-packages" in filename or "dist-packages" in filename:
        return "installed", ""
    if filename.startswith((_STDLIB, "<frozen ")):
        return "stdlib", ""
    return "users", ""
