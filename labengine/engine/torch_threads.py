"""Import of torch: in a thread that no Ctrl-C reaches, and with threads of torch that wait asleep.

An import of torch that was broken off cannot be repeated: the process has half a torch, and may crash. Only the main
thread receives interrupts, so another one imports, and goes on when the user breaks off the cell that waits for it.
The main thread imports nothing while it waits: an interrupt there could leave Python's import lock taken (3.11).

Between two products torch's threads spin by default, and take the cores from other work beside them (another lab, a
browser, the native kernels' threads). GNU's OpenMP reads its setting when it is loaded, so the variable has to be in
the environment at that moment, and only then: processes that the user starts do not inherit it.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, Thread

from labengine.engine.interrupts import acquire_interruptibly, interrupts_deferred

SPIN = "GOMP_SPINCOUNT"
VARIABLES = (SPIN, "OMP_WAIT_POLICY")
"""Variables by which a user decides how torch's threads wait; if one of them is set, labengine sets none."""


class _Import(Thread):
    """An import of torch."""

    def __init__(self) -> None:
        super().__init__(name="labengine imports torch")
        self.line = ""
        """How torch's threads wait."""
        self.error: BaseException | None = None
        """Why torch could not be imported."""
        self._under_way = Lock()
        self._under_way.acquire()

    def run(self) -> None:
        try:
            self.line = _imported()
        except BaseException as error:
            self.error = error
        finally:
            self._under_way.release()

    def wait(self) -> None:
        """Return when it is over. (After an interrupted `join`, Python 3.11 believes that the thread has ended.)"""
        with interrupts_deferred():
            acquire_interruptibly(self._under_way)
            self._under_way.release()


_newest: _Import | None = None
_guard = Lock()


def load_torch() -> str:
    """Import torch; return how its threads wait, for status(). Later calls return the same. Raises ImportError."""
    thread = _begun()
    thread.wait()
    if thread.error is not None:
        raise thread.error
    return thread.line


def wait_for_torch() -> None:
    """Import torch; an error is left to load_torch."""
    _begun().wait()


def _begun() -> _Import:
    """Return the import that is under way or done; a new one after a failure."""
    global _newest
    with interrupts_deferred(), _guard:
        if _newest is None or _newest.error is not None:
            _newest = _Import()
            _newest.start()
        return _newest


def _imported() -> str:
    settings = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]
    was_there = "torch" in sys.modules
    if not settings and not was_there:
        os.environ[SPIN] = "0"
    try:
        with _without_garbage_collection():
            import torch  # noqa: F401 (loading it is the point)
    finally:
        if not settings and not was_there:
            del os.environ[SPIN]
    if settings:
        return f"wait as {' and '.join(settings)} says"
    return f"spin while they wait: torch was loaded before labengine, without {SPIN}=0" if was_there else "wait asleep"


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Collect no garbage: of an import's objects hardly any is, and looking for it takes an eighth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
