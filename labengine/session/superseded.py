"""Labs that nothing but IPython's Out holds any more: they give their memory back once a newer lab is there.

Running a cell `lab = Lab(...)` and `lab` again and again would else keep a KV pool for each time: `Out`, `_`, `__` and
`_7` hold every lab that was the value of a cell, and its dashboard. Such a lab is closed: its recording stays, and it
says so when it is used. Where anything else refers to it, a variable, a container, a function of the user's, or
something that is not known here, it is left alone: a lab too many is better than one that is gone.
"""

from __future__ import annotations

import gc
import re
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import CellType, FrameType, FunctionType, GeneratorType, MethodType
from typing import Any, Protocol
from weakref import WeakValueDictionary

WHY = (
    "no variable has this lab any more, only IPython's Out, and a newer one has taken its place: its memory was given "
    "back. Its recording can be looked at and asked; make a new lab to step one, and keep it in a variable"
)

_OF_OUT = re.compile(r"_+\d*|_oh|Out")
"""Names under which IPython keeps the values of cells."""
_OF_IPYTHON = ("DisplayHook", "ZMQShellDisplayHook", "ExecutionResult", "CapturingDisplayHook")
_LIBRARIES = ("labengine", "labengine_widgets", "ipywidgets", "traitlets", "comm", "ipykernel")
_OURS_INSIDE = ("Lab", "LabViewSource", "RecordingViews", "Feed", "Publisher", "Viewers", "Viewing")
_INSIDE = (*_OURS_INSIDE, "CallbackDispatcher", "Comm", "DummyComm", "BaseComm", "CommManager")
"""Classes of these libraries whose objects belong to one lab and its views. A Comparison, or a Box, is a holder."""
_OF_LAB = ("labengine.lab", "labengine.session.recording_views", "labengine_widgets.", "ipywidgets.", "traitlets.")
"""Modules whose closures belong to one lab and its views."""
_CALLERS = {"functools", "weakref"}
"""Modules of objects that hold a function in order to call it."""


NUM_SHOWN = 20
"""Dashboards of such labs that stay in the notebook. Each takes two comms and some 250 KiB; older ones go."""


class FollowedViews(Protocol):
    """The widgets of a lab."""

    @property
    def widgets(self) -> Sequence[Any]: ...
    def close(self) -> None: ...


class FollowedLab(Protocol):
    """The parts of a lab that are used here."""

    @property
    def session(self) -> Any: ...
    @property
    def views(self) -> FollowedViews: ...
    def close(self) -> None: ...


_open: WeakValueDictionary[int, FollowedLab] = WeakValueDictionary()
"""Labs in the order in which they were made."""
_made: list[bool] = []
"""Not empty if a lab was made since the last look, which takes a while where torch has a million objects."""
_followed: list[Any] = []
"""The shell whose cells are followed; empty before there is one."""
_shown: deque[FollowedViews] = deque()
"""Views of closed labs, the oldest first."""


def follow(lab: FollowedLab) -> None:
    """Look after each cell whether Out alone holds a lab. Outside of IPython this does nothing."""
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
    """Close the labs that Out alone holds, but not the newest. Called after each cell; looks if it has made a lab."""
    if not _made:
        return
    _made.clear()
    labs = [lab for _, lab in sorted(_open.items()) if not lab.session.stepper.is_closed]
    for number in range(len(labs) - 1):
        lab = labs[number]
        if is_held_by_out_alone(lab, shell, labs):
            lab.session.stepper.why_closed = WHY
            lab.close()
            _shown.append(lab.views)
    while len(_shown) > NUM_SHOWN:
        _shown.popleft().close()


def is_held_by_out_alone(lab: FollowedLab, shell: Any, *own: object) -> bool:
    """Return True if nothing refers to a lab or its views but Out and labengine itself. own: the caller's objects."""
    if not _has_only_names_of_out(shell.user_ns, lab):
        return False
    targets = [lab, *lab.views.widgets]
    search = _HolderSearch(shell, (targets, *own))
    return all(not search.is_held(target) for target in targets)


class _HolderSearch:
    """Looks for what refers to an object and may be the user's."""

    def __init__(self, shell: Any, own: Sequence[object]) -> None:
        self._names = (shell.user_ns, vars(shell.user_module), shell.user_ns_hidden)
        self._out = shell.user_ns.get("_oh")
        self._skipped = set(map(id, own))
        """Ids of this module's own containers."""

    # Loops and no comprehensions over arguments: the cells of a closure would refer to them, too.

    def is_held(self, target: object) -> bool:
        """Return True if something that may be the user's refers to a lab or a view."""
        with self._referrers(target) as referrers:
            for one in referrers:
                if self._holds(one, target):
                    return True
        return False

    def _holds(self, referrer: object, target: object) -> bool:
        if isinstance(referrer, (MethodType, CellType)):
            return self._is_called_by_user(referrer)
        return not (self._is_known(referrer, target) or type(referrer).__name__ in _OF_IPYTHON)

    def _is_called_by_user(self, call: object) -> bool:
        """Return True if a method or a closure that has the lab may be the user's, or be kept by the user."""
        with self._referrers(call) as referrers:
            for one in referrers:
                if isinstance(one, FunctionType):
                    is_users = not str(one.__module__).startswith(_OF_LAB)
                elif isinstance(one, tuple) and isinstance(call, CellType):  # a function's closure
                    is_users = self._is_called_by_user(one)
                else:
                    is_users = not self._is_known(one, call) and _root(one) not in _CALLERS
                if is_users:
                    return True
        return False

    def _is_known(self, referrer: object, target: object) -> bool:
        """Return True for an object of IPython's, labengine's or ipywidgets', or a container that only these have."""
        if isinstance(referrer, dict):
            for names in self._names:
                if referrer is names:
                    return _has_only_names_of_out(referrer, target)
            if referrer is self._out:
                return True
        if not isinstance(referrer, (dict, list, tuple, set)) or hasattr(referrer, "_fields"):
            return _is_inside(referrer, target)
        with self._referrers(referrer) as holders:
            for one in holders:
                if not self._belongs(one, target):
                    return False
            return bool(holders)

    def _belongs(self, holder: object, target: object, depth: int = 3) -> bool:
        """Return True for an object that belongs to one lab, its attributes, or the names of a library's module.

        depth: dictionaries inside each other, as those of traits are.
        """
        if not isinstance(holder, dict):
            return _is_inside(holder, target)
        if str(holder.get("__name__", "")).partition(".")[0] in _LIBRARIES:
            return True
        with self._referrers(holder) as owners:
            for one in owners:
                if not (depth and self._belongs(one, target, depth - 1)):
                    return False
            return bool(owners)

    @contextmanager
    def _referrers(self, target: object) -> Iterator[list[object]]:
        """Give what refers to an object, without the frames and containers of this module."""
        found = [one for one in gc.get_referrers(target) if id(one) not in self._skipped and not _is_frame_here(one)]
        self._skipped.add(id(found))
        try:
            yield found
        finally:
            self._skipped.discard(id(found))


def _is_frame_here(one: object) -> bool:
    frame = one.gi_frame if isinstance(one, GeneratorType) else one
    return isinstance(frame, FrameType) and frame.f_globals is globals()


def _has_only_names_of_out(names: dict[Any, Any], target: object) -> bool:
    return all(not (value is target and not _OF_OUT.fullmatch(str(name))) for name, value in names.items())


def _is_inside(one: object, target: object) -> bool:
    is_own = type(one) is type(target)
    return _root(one) in _LIBRARIES and (is_own or type(one).__name__ in _INSIDE)


def _root(one: object) -> str:
    """Return the package of an object's class."""
    return type(one).__module__.partition(".")[0]
