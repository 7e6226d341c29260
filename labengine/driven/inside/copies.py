"""Imports an engine once, and copies this process for each driver: a copy begins in milliseconds.

    PYTHON copies.py ENGINE CHANNEL

CHANNEL is the descriptor of a socket, whose messages come from stand_in.py: a driver's environment, its three standard
files, and a socket. This socket is told when the copy is made, and later how it ended; if it closes, the copy is
killed. None is made, and the socket is closed, where a new process would import other files, or where this one has
threads. What the import has kept is the same in all copies: seeds, data files, the name of a temporary folder.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import selectors
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NoReturn, TextIO

import driver  # type: ignore[import-not-found]
from confinement import confine, end_session, end_with_starter  # type: ignore[import-not-found]
from marked import MARK  # type: ignore[import-not-found]

OWN = (MARK, "TMPDIR")
"""Variables that each process has for itself."""
NUM_FILES = 4
MAX_BYTES = 2**20
"""Most bytes of a message: more than a socket takes."""


class Copies:
    """The copies of this process, and the sockets that are told of them."""

    def __init__(self, channel: socket.socket, serve: Callable[[TextIO], object], began: float) -> None:
        """serve: called in a copy with its answers, until it ends. began: when the import did."""
        self._channel, self._serve, self._began = channel, serve, began
        self._files, self._mark_at = _imported_files(), _mark_at()
        self._sockets: dict[int, socket.socket] = {}
        """By the copies' process numbers."""
        self._selector = selectors.DefaultSelector()
        self._ended, self._wake = socket.socketpair()
        for one in (self._ended, self._wake):
            one.setblocking(False)
        self._selector.register(channel, selectors.EVENT_READ, self._hear)
        self._selector.register(self._ended, selectors.EVENT_READ, self._tell_ends)
        self._mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        """Make copies until the channel ends."""
        while True:
            for key, _ in self._selector.select():
                if self._selector.get_map().get(key.fd) is key:  # an earlier one in this round may have closed it
                    key.data()

    def _hear(self) -> None:
        text, files, _, _ = socket.recv_fds(self._channel, MAX_BYTES, NUM_FILES)
        if not text:
            self._end_all()
        asking = socket.socket(fileno=files.pop()) if len(files) == NUM_FILES else None
        try:
            if asking is not None and self._make(asking, files, json.loads(text)):
                asking = None
        finally:
            for file in files:
                os.close(file)
            if asking is not None:
                asking.close()

    def _make(self, asking: socket.socket, files: list[int], environment: Mapping[str, str]) -> bool:
        """Make a copy; return False if it would differ from a new process, or cannot be made."""
        if not self._is_as_new():
            return False
        maker = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            return False
        if not pid:
            asking.close()
            self._become(maker, files, environment)
        self._sockets[pid] = asking
        self._selector.register(asking, selectors.EVENT_READ, lambda: self._end(pid))
        with suppress(OSError):  # then it reads the end of this socket, too
            asking.send(b"made")
        return True

    def _is_as_new(self) -> bool:
        """Return True if this process has one thread, and a new one would import the same files.

        ctime tells a file that was replaced by an older one, too.
        """
        with suppress(OSError):
            is_same = all(os.stat(file).st_ctime < self._began for file in self._files)
            return is_same and len(os.listdir("/proc/self/task")) == 1
        return False

    def _become(self, maker: int, files: list[int], environment: Mapping[str, str]) -> NoReturn:
        """Be the driver: with the files of a new process, its environment, and nothing of this one."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            confine()
            end_with_starter()
            if os.getppid() != maker:
                os._exit(1)
            ctypes.memmove(self._mark_at, environment[MARK].encode(), len(environment[MARK]))
            os.environ.update({name: environment[name] for name in OWN})
            tempfile.tempdir = None  # it was found in the other environment
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            for key in self._selector.get_map().values():
                os.close(key.fd)
            self._selector.close()
            self._wake.close()
            self._serve(driver.own_stdout())
        except (BrokenPipeError, KeyboardInterrupt):
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def _end(self, pid: int) -> None:
        """Kill a copy whose socket has closed."""
        with suppress(KeyError):
            self._forget(pid).close()
        end_session(pid)
        os.kill(pid, signal.SIGKILL)  # it is not yet waited for, so that no other process has its number

    def _forget(self, pid: int) -> socket.socket:
        asking = self._sockets.pop(pid)
        self._selector.unregister(asking)
        return asking

    def _tell_ends(self) -> None:
        """Wait for the copies that have ended, and tell how."""
        with suppress(BlockingIOError):
            self._ended.recv(MAX_BYTES)
        with suppress(ChildProcessError):
            while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                end_session(found.si_pid)  # before another process can have its number
                pid, status = os.waitpid(found.si_pid, 0)
                if pid in self._sockets:
                    with self._forget(pid) as asking, suppress(OSError):
                        asking.send(str(os.waitstatus_to_exitcode(status)).encode())

    def _end_all(self) -> NoReturn:
        for pid in [*self._sockets]:
            self._end(pid)
        os._exit(0)


def _imported_files() -> list[str]:
    files = {getattr(one, "__dict__", {}).get("__file__") for one in [*sys.modules.values()]}
    return [file for file in files if isinstance(file, str) and os.path.exists(file)]


def _mark_at() -> int:
    """Return where this process's mark is in memory. Raises OSError if /proc does not show it from there."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    at = int(getenv(MARK.encode()))
    with open("/proc/self/stat") as file:
        *_, start, end, _ = file.read().split()
    if not int(start) <= at < int(end):
        raise OSError("the import has moved this process's environment")
    return at


def main(engine: str, channel: str) -> None:
    """Import an engine, and make copies until the channel ends, at the latest with labengine's process."""
    began = time.time()
    serve = driver.imported(engine)
    gc.collect()
    gc.freeze()
    for output in (sys.stdout, sys.stderr):
        output.flush()
    Copies(socket.socket(fileno=int(channel)), serve, began).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
