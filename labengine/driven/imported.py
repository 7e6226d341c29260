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

COPIES = DRIVER.with_name("copies.py")


class Imported:
    """The process that is copied, for several users; see copies.py. It ends with its last user; its copies end with it.

    Where there is none, an engine's processes import it themselves.
    """

    def __init__(self, driven: DrivenEngine) -> None:
        self._driven, self._environment = driven, environment(driven.name, driven.checkout)
        self._folder = _folder()
        self._lock = RLock()
        self._num_users = 0
        self._process: ContainedProcess | None = None
        if sys.platform != "linux":
            return
        self._channel, given = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [driven.python, str(COPIES), driven.name, str(given.fileno())]
        with given:
            try:
                self._process = ContainedProcess(
                    command, self._environment, stdin=DEVNULL, stdout=DEVNULL, pass_fds=(given.fileno(),)
                )
            except BaseException as error:
                self._channel.close()
                if not isinstance(error, OSError):  # the engine's own process says why it does not start
                    raise

    @property
    def channel(self) -> int | None:
        """The descriptor on which a copy is asked for; None if there is no process as a new one would be."""
        is_as_new = self._environment == environment(self._driven.name, self._driven.checkout)
        has_copies = self._process is not None and is_as_new and self._folder == _folder()
        return self._channel.fileno() if has_copies else None

    def use(self) -> None:
        """Count a user, who will leave."""
        with self._lock:
            self._num_users += 1

    def leave(self) -> None:
        """End the process with its last user."""
        with self._lock:
            self._num_users -= 1
            process, self._process = (None, self._process) if self._num_users else (self._process, None)
        if process is not None:
            self._channel.close()
            process.close()


def _folder() -> str | None:
    with suppress(OSError):  # it is deleted
        return os.getcwd()
    return None
