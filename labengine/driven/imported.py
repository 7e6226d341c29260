"""A process that has imported a driven engine, and is copied for each new process of it. On Linux."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from subprocess import DEVNULL
from threading import RLock

from labengine.driven.contained import ContainedProcess
from labengine.driven.process import DRIVER, DrivenEngine, environment

ENDING_S = 1.0
"""Seconds that it has to end its copies' sessions; while it imports, it has none."""
COPIES = DRIVER.with_name("copies.py")


class Imported:
    """The process that is copied; see copies.py. It begins with its first user; it and its copies end with its last.

    Where there is none, an engine's processes import it themselves.
    """

    def __init__(self, driven: DrivenEngine) -> None:
        self._driven = driven
        self._lock = RLock()
        self._num_users = 0
        self._process: ContainedProcess | None = None
        self._channel: socket.socket | None = None

    def use(self) -> None:
        """Add a user, who leaves once, also if this raises."""
        with self._lock:
            self._num_users += 1
            if self._num_users == 1 and sys.platform == "linux":
                self._start()

    def leave(self) -> None:
        """Remove a user."""
        with self._lock:
            self._num_users -= 1
            if not self._num_users:
                if self._channel is not None:
                    self._channel.close()
                if self._process is not None:
                    if not self._process.has_ended:
                        self._process.status(ENDING_S)
                    self._process.close()
                self._channel = self._process = None

    @property
    def channel(self) -> int | None:
        """The descriptor on which a copy is asked for; None if there is no process as a new one would be."""
        with self._lock:
            if self._channel is None or self._process is None or self._process.has_ended:
                return None
            return self._channel.fileno() if self._surroundings == self._surroundings_now() else None

    def _start(self) -> None:
        self._surroundings = own, _ = self._surroundings_now()
        self._channel, given = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [self._driven.python, str(COPIES), self._driven.name, str(given.fileno())]
        self._process = ContainedProcess()
        with given, suppress(OSError):  # the engine's own process says why it does not start
            self._process.start(command, own, stdin=DEVNULL, stdout=DEVNULL, pass_fds=(given.fileno(),))

    def _surroundings_now(self) -> tuple[dict[str, str], tuple[int, int]]:
        folder = os.stat(".")
        return environment(self._driven.name, self._driven.checkout), (folder.st_dev, folder.st_ino)
