"""A flag that one thread waits for, and that any thread may set, also in the middle of a Ctrl-C."""

from __future__ import annotations

import time
from queue import Empty, SimpleQueue


class WakeFlag:
    """As threading.Event, for one waiting thread, and without a lock that Python code takes.

    An interrupt inside Event.set() can leave the Event's lock taken, and then every thread that sets it or waits for it
    blocks. Here, at worst, the waiting thread notices the flag only when its timeout has passed.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._rings: SimpleQueue[None] = SimpleQueue()

    def is_set(self) -> bool:
        """True from set() to clear()."""
        return self._is_set

    def set(self) -> None:
        """Wake the waiting thread."""
        if not self._is_set:
            self._is_set = True
            self._rings.put(None)

    def clear(self) -> None:
        """Wait again."""
        self._is_set = False

    def wait(self, seconds: float) -> bool:
        """Wait until the flag is set, at most until the timeout; return True if it is set."""
        deadline = time.monotonic() + seconds
        while not self._is_set and (left := deadline - time.monotonic()) > 0:
            try:
                self._rings.get(timeout=left)
            except Empty:
                break
        return self._is_set
