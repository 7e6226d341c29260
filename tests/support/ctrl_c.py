"""Ctrl-C as a real SIGINT: Python's own handler for the time of a test, and the signal itself."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def python_handles_sigint() -> Iterator[None]:
    """Install Python's own handler of SIGINT, and assert that the code inside has left it in place.

    A shell starts processes in its background with SIGINT ignored; there, Ctrl-C would raise nothing. Nor would it
    inside a callback of the garbage collector, where Python drops every exception: Hypothesis's is taken out.
    """
    before, callbacks = signal.signal(signal.SIGINT, signal.default_int_handler), gc.callbacks[:]
    gc.callbacks.clear()
    try:
        yield
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "the handler of SIGINT was not restored"
    finally:
        signal.signal(signal.SIGINT, before)
        gc.callbacks[:] = callbacks


def press_ctrl_c(*_: object) -> None:
    """Send SIGINT to the calling thread; the main thread raises KeyboardInterrupt before its next bytecode.

    Takes and ignores any arguments, so that it may be a listener or a hook.
    """
    signal.raise_signal(signal.SIGINT)


def press_ctrl_c_in_main_thread() -> None:
    """Send SIGINT to the main thread from any other one."""
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGINT)
