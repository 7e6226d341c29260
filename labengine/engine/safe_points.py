"""Safe points: instructions at which an exception may be raised in code that did not ask for it, as in an endless step.

An exception between a change of the core and its journal entry would leave it half done. So it is raised where a part
could itself have raised one: at the start of a function of the core, or in foreign code (a part, a listener, a
connector). It is not raised in code that follows the engine's events (checks, timeline, figures), in a rollback, or
while a lock changes its owner. After two seconds only the locks count (Care.OF_LOCKS): it is raised at any instruction
of the core or of foreign code, and the lab may then need reset() or rewind().
"""

from __future__ import annotations

import dis
import sysconfig
from enum import IntEnum
from functools import cache
from pathlib import Path
from types import FrameType

from labengine.system import code_roles
from labengine.system.code_roles import Role, role_of

_ROOT = str(Path(__file__).parents[1])
_STDLIB = sysconfig.get_paths()["stdlib"]


class Care(IntEnum):
    """The minimum of state that an exception from outside must not leave half changed."""

    OF_LOCKS = 1
    """Locks only: after such a long wait a broken lab is better than one that hangs."""
    OF_THE_CORE = 2
    """The core: calls in a part's code may be interrupted."""
    OF_PARTS = 3
    """Parts too: interrupt them only between two rounds of their loops, or at the start of a function."""


def is_safe_point(frame: FrameType | None, care: Care) -> bool:
    """Return True if an exception may be raised at the instruction where a thread was interrupted."""
    if frame is None:
        return False
    if is_ours(frame):
        role = role_of(frame)
        is_core = role in (Role.CORE, Role.NOT_UNDONE)
        is_safe = (is_core and care is Care.OF_LOCKS) or (role is Role.CORE and _instruction(frame) == ("RESUME", 0))
    else:
        is_safe = _is_called_by_users(frame) and (care < Care.OF_PARTS or _is_between_rounds(frame))
    return is_safe and (care is Care.OF_LOCKS or _may_unwind(frame))


def _is_between_rounds(frame: FrameType) -> bool:
    name, _ = _instruction(frame)
    return name == "RESUME" or "JUMP_BACKWARD" in name


def _instruction(frame: FrameType) -> tuple[str, int]:
    code, at = frame.f_code.co_code, frame.f_lasti
    return (dis.opname[code[at]], code[at + 1]) if at >= 0 else ("", 0)


def _is_called_by_users(frame: FrameType | None) -> bool:
    """Return False for functions of the standard library called by labengine's, such as those around a generator."""
    while frame is not None and _is_stdlib(frame):
        frame = frame.f_back
    return frame is not None and not is_ours(frame)


def _may_unwind(frame: FrameType | None) -> bool:
    """Return True if an exception can end all frames up to the step or the session's call."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return False  # an interrupted import leaves broken modules
        role = role_of(frame)
        if role in (Role.FOLLOWS_EVENTS, Role.COMPUTES):
            return False
        if role is Role.ENGINE:
            return code_roles.is_in_step(frame)
        if role is Role.SESSION:
            return True
        frame = frame.f_back
    return True


def is_in_step(frame: FrameType | None) -> bool:
    """Return True inside an engine's step, except in its forward pass."""
    while frame is not None:
        if code_roles.is_in_step(frame):
            return True
        if role_of(frame) is Role.COMPUTES:
            return False
        frame = frame.f_back
    return False


# -- the owner of code -------------------------------------------------------------------------------------------------


def is_ours(frame: FrameType) -> bool:
    """Return True in code of this package or of the widgets."""
    return role_of(frame) is not Role.USERS and _owner_of(frame) == "ours"


def is_users(frame: FrameType) -> bool:
    """Return True in a scenario, and in code that is neither ours, nor in the standard library, nor installed."""
    return role_of(frame) is Role.USERS or _owner_of(frame) == "users"


def is_decision(frame: FrameType) -> bool:
    """Return True in code of the core, and of the engine that calls it."""
    return role_of(frame) in (Role.CORE, Role.NOT_UNDONE, Role.ENGINE)


def short_path(filename: str) -> str:
    """Return a file's path inside the package, "a cell" for a notebook's cell, and any other file's name."""
    inside = _owner(filename)[1]
    if inside:
        return f"labengine/{inside}"
    return "a cell" if "ipykernel_" in filename or filename.startswith("<") else Path(filename).name


def _is_stdlib(frame: FrameType) -> bool:
    return _owner_of(frame) == "stdlib"


def _owner_of(frame: FrameType) -> str:
    filename, names = frame.f_code.co_filename, frame.f_globals
    if filename == "<string>" and ("__file__" in names or names.get("__name__") != "__main__"):
        return "stdlib"  # a method that dataclasses or collections wrote; the code of `python -c` has this name, too
    return _owner(filename)[0]


@cache
def _owner(filename: str) -> tuple[str, str]:
    """Return the owner of a file, and for a file of the package its path there."""
    if filename.startswith(_ROOT):
        inside = filename[len(_ROOT) + 1 :].replace("\\", "/")
        return "ours", inside
    if "labengine_widgets" in Path(filename).parts:
        return "ours", "widgets"
    if "site-packages" in filename or "dist-packages" in filename:
        return "installed", ""
    if filename.startswith((_STDLIB, "<frozen ")):
        return "stdlib", ""
    return "users", ""
