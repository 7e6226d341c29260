"""The signals with which a user, a service manager or a terminal ends a command that records or serves."""

from __future__ import annotations

import signal
from collections.abc import Callable
from math import inf
from time import monotonic
from types import FrameType

ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
PERIOD = 0.1
"""Seconds between a wait's checks for a signal."""


class EndingSignals:
    """In the block, Ctrl-C, `docker stop`, systemd and a dropped terminal only end `wait`; they interrupt nothing else.

    The recording can then be written completely; a handler that raises could interrupt the write. A command started
    with & in a script ignores SIGINT, but a recording reacts to it all the same. SIGHUP, which nohup ignores, stays
    ignored.
    """

    def __init__(self) -> None:
        self._is_asked = False

    def wait(self, seconds: float | None, is_over: Callable[[float], bool]) -> None:
        """Wait for a signal, for is_over, or for this many seconds. is_over(period): waits that long and checks."""
        until = inf if seconds is None else monotonic() + seconds
        while not self._is_asked and (left := until - monotonic()) > 0 and not is_over(min(PERIOD, left)):
            pass

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._is_asked = True

    def __enter__(self) -> EndingSignals:
        taken = [one for one in ENDING if one == signal.SIGINT or signal.getsignal(one) != signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._end) for number in taken}
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
