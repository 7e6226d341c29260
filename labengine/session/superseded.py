"""Labs held only by IPython's Out: they release their memory once a newer lab exists.

Running a cell with `lab = Lab(...)` and `lab` repeatedly would otherwise keep a KV pool per run: `Out`, `_`, `__` and
`_7` hold every lab that was a cell's value, and its dashboard. Such a lab is closed: its recording stays, and its
errors say so. A lab that anything else refers to (a variable, a container, a user's function, an unknown object) stays
open, since one lab too many is better than a lost one.
"""

from __future__ import annotations

import gc
import re
import sys
from collections import deque
from types import CellType, FrameType, FunctionType, GeneratorType, MethodType
from typing import Any
from weakref import WeakValueDictionary

WHY = (
    "this lab was closed to release its memory, because only IPython's Out still held it and there is a newer lab. Its "
    "recording can still be viewed; to step a lab, make a new one and keep it in a variable"
)

_OF_OUT = re.compile(r"_+\d*|_oh|Out")
"""Names under which IPython keeps the values of cells."""
_OF_IPYTHON = ("DisplayHook", "ZMQShellDisplayHook", "ExecutionResult", "CapturingDisplayHook")
_LIBRARIES = ("labengine", "labengine_widgets", "ipywidgets", "traitlets", "comm", "ipykernel")
_OURS_INSIDE = ("Lab", "LabViewSource", "Feed", "Publisher", "Viewers", "Viewing")
_INSIDE = (*_OURS_INSIDE, "CallbackDispatcher", "Comm", "DummyComm", "BaseComm", "CommManager")
"""Classes of these libraries whose objects belong to one lab and its views. A Comparison, or a Box, is a holder."""
_OF_LAB = ("labengine.lab", "labengine.session.looking", "labengine_widgets.", "ipywidgets.", "traitlets.")
"""Modules whose closures belong to one lab and its views."""
_CALLERS = {"functools", "weakref"}
"""Modules of objects that hold a function to call it."""
_CONTAINERS = (dict, list, tuple, set, MethodType, CellType)
_DEPTH = 4
"""Most nested containers, as in traits and closures."""

NUM_SHOWN = 20
"""Dashboards of such labs that stay in the notebook. Each takes two comms and some 250 KiB; older ones are removed."""

_open: WeakValueDictionary[int, Any] = WeakValueDictionary()
"""Labs in order of creation."""
_made: list[bool] = []
"""Not empty if a lab was made since the last search, which is slow if torch has a million objects."""
_followed: list[Any] = []
"""The shell whose cells are followed; empty before there is one."""
_shown: deque[Any] = deque()
"""Closed labs whose views stay, the oldest first."""


def follow(lab: Any) -> None:
    """After each cell, close labs held by Out alone. Outside of IPython this does nothing."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None:
        return
    _open[max(_open, default=0) + 1] = lab
    _made.append(True)
    if not _followed or _followed[0] is not shell:
        _followed[:] = [shell]
        shell.events.register("post_run_cell", lambda *_: close_superseded(shell))


def close_superseded(shell: Any) -> None:
    """Close the labs held by Out alone, except the newest. Called after each cell; acts only if it made a lab."""
    if not _made:
        return
    _made.clear()
    labs = [lab for _, lab in sorted(_open.items()) if not lab.session.stepper.is_closed]
    for number in range(len(labs) - 1):
        lab = labs[number]
        if _is_held_by_out_alone(lab, shell, labs):
            lab.session.stepper.why_closed = WHY
            lab.close()
            _shown.append(lab)
    while len(_shown) > NUM_SHOWN:
        _shown.popleft().close_views()


def _is_held_by_out_alone(lab: Any, shell: Any, labs: list[Any]) -> bool:
    """Return True if only Out and labengine itself refer to a lab or its views."""
    targets = [lab, *lab.widgets]
    if any(_is_named(shell.user_ns, target) for target in targets):  # fast, and true for most
        return False
    search = _HolderSearch(shell, [labs, targets, _shown])
    return all(not search.is_held(target, target) for target in targets)


class _HolderSearch:
    """Searches for references to an object that may be the user's. own: containers of this module."""

    def __init__(self, shell: Any, own: list[object]) -> None:
        self._names: tuple[dict[Any, Any], ...] = (shell.user_ns, vars(shell.user_module), shell.user_ns_hidden)
        self._out = shell.user_ns.get("_oh")
        self._skipped = {id(own), *map(id, own)}

    # Loops, not comprehensions over arguments: the cells of a closure would refer to them, too.

    def is_held(self, one: object, target: object, depth: int = _DEPTH) -> bool:
        """Return True if an object that may be the user's refers to a lab or a view, directly or not.

        one: the target, or a container, method or closure that holds it.
        """
        referrers = gc.get_referrers(one)
        self._skipped.add(id(referrers))
        try:
            num_known = 0
            for holder in referrers:
                if id(holder) in self._skipped or _is_frame_here(holder):
                    continue
                if self._is_users(holder, one, target, depth):
                    return True
                num_known += 1
            return one is not target and not num_known
        finally:
            self._skipped.discard(id(referrers))

    def _is_users(self, holder: object, one: object, target: object, depth: int) -> bool:
        for names in self._names:
            if holder is names:
                return _is_named(names, one)
        if holder is self._out or type(holder).__name__ in _OF_IPYTHON:
            return False
        if isinstance(holder, FunctionType):
            return not str(holder.__module__).startswith(_OF_LAB)
        if isinstance(holder, dict) and str(holder.get("__name__", "")).partition(".")[0] in _LIBRARIES:
            return False
        if isinstance(holder, _CONTAINERS) and not hasattr(holder, "_fields"):
            return not depth or self.is_held(holder, target, depth - 1)
        if isinstance(one, (MethodType, CellType)) and _root(holder) in _CALLERS:
            return False
        is_inside = type(holder) is type(target) or type(holder).__name__ in _INSIDE
        return not (is_inside and _root(holder) in _LIBRARIES)


def _is_frame_here(one: object) -> bool:
    frame = one.gi_frame if isinstance(one, GeneratorType) else one
    return isinstance(frame, FrameType) and frame.f_globals is globals()


def _is_named(names: dict[Any, Any], one: object) -> bool:
    """Return True if a variable that does not belong to Out holds an object."""
    return any(value is one and not _OF_OUT.fullmatch(str(name)) for name, value in names.items())


def _root(one: object) -> str:
    """Return the package of an object's class."""
    return type(one).__module__.partition(".")[0]
