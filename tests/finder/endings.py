"""Ways in which a part ends its process, or would: a table for every way of running."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from labengine.core.block_pool import BlockPool


class OwnStop(BaseException):
    """An exception that no `except Exception` catches."""


class UntoldError(Exception):
    """An exception whose text ends the process."""

    def __str__(self) -> str:
        sys.exit(0)


def raises(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def abort() -> None:
    faulthandler.disable()
    os.abort()


@dataclass(frozen=True)
class Ending:
    """act: the part's action; said: text in its message. is_seen_inside: True if it raises, also in this process."""

    act: Callable[[], object]
    said: str
    is_seen_inside: bool = True


ENDINGS = {
    "sys.exit": Ending(lambda: sys.exit(0), "ends the process: SystemExit: 0, raised in Ends.touch"),
    "SystemExit without a text": Ending(raises(SystemExit()), "ends the process: SystemExit, raised in Ends.touch"),
    "KeyboardInterrupt": Ending(raises(KeyboardInterrupt()), "ends the process: KeyboardInterrupt"),
    "GeneratorExit": Ending(raises(GeneratorExit()), "ends the process: GeneratorExit"),
    "StopIteration": Ending(raises(StopIteration()), "StopIteration"),
    "an exception of its own": Ending(raises(OwnStop("no")), "ends the process: OwnStop: no"),
    "a text that ends it": Ending(raises(UntoldError()), "ends the process: SystemExit: 0, raised in UntoldError."),
    "fork": Ending(os.fork, "forks the process"),
    "alarm": Ending(lambda: signal.alarm(1), "sets an alarm (SIGALRM)"),
    "os._exit(0)": Ending(lambda: os._exit(0), "ends the process (exit code 0), in ", is_seen_inside=False),
    "os._exit(7)": Ending(lambda: os._exit(7), "ends the process (exit code 7), in ", is_seen_inside=False),
    "abort": Ending(abort, "ends the process (signal 6), in abort (endings.py:", is_seen_inside=False),
    "SIGKILL": Ending(lambda: os.kill(os.getpid(), 9), "(signal 9), in ", is_seen_inside=False),
    "SIGTERM": Ending(lambda: os.kill(os.getpid(), 15), "(signal 15), in ", is_seen_inside=False),
    "closed files": Ending(lambda: os.closerange(3, 64), "closes files of the process", is_seen_inside=False),
}


KNOWN = set(os.listdir("/proc/self/fd"))
"""Files of the test itself: its captured output."""


def write_into_pipes() -> None:
    for descriptor in set(os.listdir("/proc/self/fd")) - KNOWN:
        try:
            os.write(int(descriptor), b"a part's own text\n")
        except OSError:
            continue


HARMLESS = {
    "a thread that stays": lambda: threading.Thread(target=threading.Event().wait).start(),
    "a text in the pipe": write_into_pipes,
    "a closed stdout": lambda: sys.stdout.close(),
    "a print": lambda: print("a print of a part"),
}
"""Actions that do not end the process, so that the search continues to its end."""


class Ends(BlockPool):
    """Calls the test's action at a hit."""

    act: ClassVar[Callable[[], object]]

    def touch(self, block_ids: Sequence[int]) -> None:
        if block_ids:
            type(self).act()
        super().touch(block_ids)


def ending(act: Callable[[], object]) -> type[Ends]:
    """Return a part that calls `act` at its hits."""
    return type("Ends", (Ends,), {"act": staticmethod(act)})


def once(act: Callable[[], object]) -> type[Ends]:
    """Return a part that calls `act` at its first hit in a process."""
    done: list[bool] = []

    def at_first() -> Any:
        if not done:
            done.append(True)
            act()

    return ending(at_first)
