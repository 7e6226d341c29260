"""Threads, or the event loop where Python has no threads, as in a browser (Pyodide).

All background work starts here: a lab's background run, a feed's worker.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Protocol

Call = Callable[[], object]


class Cancellable(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call if it has not been made yet."""


def start_thread(run: Call, name: str) -> threading.Thread | None:
    """Start a daemon thread and return it; None where this Python cannot start threads."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


def call_on_loop(call: Call, seconds: float = 0.0) -> Cancellable:
    """Schedule a call on the running event loop after `seconds`, behind all calls already waiting.

    Raises RuntimeError where no event loop is running.
    """
    import asyncio  # imported late: a lab in a terminal does not need it

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError("no thread can be started here, and no event loop is running to use instead") from None
    return loop.call_at(loop.time() + seconds, call) if seconds > 0 else loop.call_soon(call)


def weakly(method: Callable[..., object]) -> Callable[..., None]:
    """Return a wrapper of a bound method that does not keep its object alive, and does nothing once it is gone."""
    reference = weakref.WeakMethod(method)

    def call(*arguments: object) -> None:
        if (found := reference()) is not None:
            found(*arguments)

    return call
