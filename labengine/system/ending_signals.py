"""The signals by which a user, a service manager or a terminal ends a command that records or serves."""

from __future__ import annotations

import signal
from collections.abc import Callable
from math import inf
from time import monotonic
from types import FrameType

ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
PERIOD = 0.1
"""Seconds after which a wait looks for a signal."""


class EndingSignals:
    """In the block, Ctrl-C, `docker stop`, systemd and a dropped terminal end `wait`, and interrupt nothing else.

    What was recorded is then written in peace: a handler that raised could do so in the middle of that. A script that
    starts a command with & has it ignore SIGINT; a recording that was asked for does not. What nohup ignores, the
    SIGHUP of a dropped terminal, stays ignored.
    """

    def __init__(self) -> None:
        self._is_asked = False

    def wait(self, seconds: float | None, is_over: Callable[[float], bool]) -> None:
        """Wait for a signal, for is_over, or for so many seconds. is_over(period): waits so long, and looks."""
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
