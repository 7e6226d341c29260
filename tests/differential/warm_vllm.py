"""An imported vLLM whose copies stand for the processes of driven labs, so that one starts in a tenth of a second.

    PYTHON_WITH_VLLM warm_vllm.py SOCKET WORKLOAD_S

A lab starts `interpreter(...)`, which has the server make a copy with its own files and environment, and ends as the
copy does; if it is ended, so is the copy.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import socket
import stat
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

CLIENT = """
import json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect(sys.argv[1])
socket.send_fds(server, [json.dumps(dict(os.environ)).encode()], [0, 1, 2])
for file in (0, 1):
    os.close(file)
status = int(server.recv(99))
if status < 0:
    signal.signal(-status, signal.SIG_DFL) if -status != signal.SIGKILL else None
    os.kill(os.getpid(), -status)
os._exit(status)
"""


def interpreter(folder: Path, python: str, at: Path) -> str:
    """Write the interpreter of a server at a socket; return its path. Other scripts than the driver go to `python`."""
    client, file = folder / "client.py", folder / "python"
    client.write_text(CLIENT)
    starts = f'case "$1" in *driver.py) exec {python} -I -S {client} {at};; esac'
    file.write_text(f'#!/bin/sh\n{starts}\nexec {python} "$@"\n')
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


class Server:
    """Makes copies, and tells the ends of both sides to each other."""

    def __init__(self, driver: Any, path: str) -> None:
        self._driver, self._selector = driver, selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(path)
        self._listener.listen(64)
        self._selector.register(self._listener, selectors.EVENT_READ, self._copy)
        self._selector.register(0, selectors.EVENT_READ, sys.exit)

    def serve(self) -> None:
        """Serve until stdin ends."""
        while True:
            for key, _ in self._selector.select():
                key.data()

    def _copy(self) -> None:
        asking, _ = self._listener.accept()
        text, files, _, _ = socket.recv_fds(asking, 1 << 20, 3)
        pid = os.fork()
        if not pid:
            self._become(files, json.loads(text))
        for file in files:
            os.close(file)
        ended = os.pidfd_open(pid)
        self._selector.register(ended, selectors.EVENT_READ, lambda: self._tell(asking, ended, pid))
        self._selector.register(asking, selectors.EVENT_READ, lambda: self._end(asking, pid))

    def _become(self, files: list[int], environment: dict[str, str]) -> None:
        try:
            for number, file in enumerate(files):
                os.dup2(file, number)
            os.closerange(3, 1024)
            os.environ.clear()
            os.environ.update(environment)
            self._driver.main("vllm")
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def _end(self, asking: socket.socket, pid: int) -> None:
        self._selector.unregister(asking)
        for kill in (os.killpg, os.kill):
            with suppress(OSError):
                kill(pid, signal.SIGKILL)

    def _tell(self, asking: socket.socket, ended: int, pid: int) -> None:
        self._selector.unregister(ended)
        os.close(ended)
        with suppress(KeyError):
            self._selector.unregister(asking)
        with suppress(OSError):
            asking.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
        asking.close()


def main(path: str, seconds: str) -> None:
    """Import vLLM and serve."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "labengine" / "driven" / "inside"))
    import driver  # type: ignore[import-not-found]
    import vllm_events  # type: ignore[import-not-found]  # noqa: F401
    import vllm_scheduler  # type: ignore[import-not-found]  # noqa: F401

    driver.WORKLOAD_S, driver.looks.NUM_ASLEEP = float(seconds), 10
    gc.freeze()
    server = Server(driver, path)
    print(len(os.listdir("/proc/self/task")), flush=True)
    server.serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
