"""Threads where this Python has them; the event loop in their place where it has none, as in a browser (Pyodide).

Everything that works beside its caller starts here: a lab's background, a feed's worker.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Protocol

Call = Callable[[], object]


class Cancellable(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Do not make the call, if it has not been made."""


def start_thread(run: Call, name: str) -> threading.Thread | None:
    """Start a daemon thread and return it; None where this Python cannot start threads."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


def call_on_loop(call: Call, seconds: float = 0.0) -> Cancellable:
    """Call on the running event loop after so many seconds, and after all that waits for it already.

    Raises RuntimeError where no event loop is running.
    """
    import asyncio  # a lab in a terminal needs none of it

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError("no thread can be started here, and no event loop is running to take its place") from None
    return loop.call_at(loop.time() + seconds, call) if seconds > 0 else loop.call_soon(call)


def weakly(method: Callable[..., object]) -> Callable[..., None]:
    """Return a call of a bound method that does not keep its object alive: it does nothing once that is gone."""
    reference = weakref.WeakMethod(method)

    def call(*arguments: object) -> None:
        if (found := reference()) is not None:
            found(*arguments)

    return call
