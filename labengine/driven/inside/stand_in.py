"""Stands for a copy of an imported engine, as a child of labengine: it passes on its files, and ends as the copy does.

    PYTHON -I -S stand_in.py CHANNEL COMMAND ...

It waits until copies.py has imported the engine. If no copy is made, it becomes the command: a new process of the
engine.
"""

import json
import os
import resource
import signal
import socket
import sys
from contextlib import suppress


def main(channel: str, *command: str) -> None:
    """Have a copy made, and wait for its end; or run the command."""
    own, given = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with suppress(OSError), given, socket.socket(fileno=int(channel)) as maker:  # the maker has ended
        socket.send_fds(maker, [json.dumps(dict(os.environ)).encode()], [0, 1, 2, given.fileno()])
    if not _received(own):
        os.execvp(command[0], command)
    for file in (0, 1):
        os.close(file)
    status = int(_received(own) or -signal.SIGKILL)  # without its maker, a copy is killed
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the core of an engine that aborts is the copy's
        with suppress(OSError):  # SIGKILL
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def _received(own: socket.socket) -> bytes:
    with suppress(OSError):
        return own.recv(16)
    return b""


if __name__ == "__main__":
    main(*sys.argv[1:])
