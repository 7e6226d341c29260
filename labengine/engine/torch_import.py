"""Import torch in a thread that Ctrl-C does not reach, and make torch's threads sleep while they wait.

An interrupted import of torch cannot be repeated: the process has half a torch, and may crash. Only the main thread
receives interrupts, so another thread imports. It continues if the user interrupts the waiting cell, and the process
does not end before it. The main thread imports nothing while it waits, because an interrupt there could leave Python's
import lock taken (3.11).

By default torch's threads spin between two products, and take the cores from other work (another lab, a browser, the
native kernels' threads). GNU's OpenMP reads its setting when it is loaded, so the variable is in the environment only
at that moment; processes that the user starts later do not inherit it.
"""

from __future__ import annotations

import os
import sys
from threading import Lock, Thread
from time import sleep

from labengine.engine.interrupts import interrupts_allowed, interrupts_deferred
from labengine.system.garbage_collection import garbage_collection_paused

SPIN = "GOMP_SPINCOUNT"
VARIABLES = (SPIN, "OMP_WAIT_POLICY")
"""Variables with which a user decides how torch's threads wait. If one of them is set, labengine sets none."""
POLL_S = 0.005


class _Import(Thread):
    """A thread that imports torch."""

    def __init__(self) -> None:
        super().__init__(name="labengine-imports-torch")
        self.waiting_line = ""
        """A description of how torch's threads wait."""
        self.error: BaseException | None = None
        """The error that ended the import."""
        self.is_over = False
        self._process = os.getpid()

    def run(self) -> None:
        try:
            self.waiting_line = _imported()
        except BaseException as error:
            self.error = error
        finally:
            self.is_over = True

    def wait(self) -> None:
        """Wait until the import has ended. Raises ImportError in a process that was forked in the meantime.

        Polls: an interrupt can leave a lock taken, and after an interrupted `join` Python 3.11 believes that the
        thread has ended.
        """
        with interrupts_allowed():
            while not self.is_over:
                if os.getpid() != self._process:
                    raise ImportError("torch cannot be imported: this process was forked during the import")
                sleep(POLL_S)


_newest: _Import | None = None
_guard = Lock()


def load_torch() -> str:
    """Import torch; return how its threads wait, for status(). Later calls return the same.

    Raises what the import raises; the next call tries again.
    """
    global _newest
    thread = _begun()
    thread.wait()
    if thread.error is not None:
        with interrupts_deferred(), _guard:
            _newest = None if _newest is thread else _newest
        raise thread.error
    return thread.waiting_line


def _begun() -> _Import:
    """Return the import that is under way or done."""
    global _newest
    with interrupts_deferred(), _guard:
        if _newest is None:
            begun = _Import()
            try:
                begun.start()
            except RuntimeError:  # the process can start no thread
                begun.run()
            _newest = begun
        return _newest


def _imported() -> str:
    settings = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]
    was_there = "torch" in sys.modules
    if not settings and not was_there:
        os.environ[SPIN] = "0"
    try:
        with garbage_collection_paused():
            import torch  # noqa: F401 (loading it is the point)
    finally:
        if not settings and not was_there:
            os.environ.pop(SPIN, None)
    if settings:
        return f"wait as set by {' and '.join(settings)}"
    return f"spin while they wait: torch was loaded before labengine, without {SPIN}=0" if was_there else "wait asleep"
