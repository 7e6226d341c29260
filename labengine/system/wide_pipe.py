"""A pipe that holds whole messages, so that neither side waits for the other one's turn."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.connection import Connection  # a browser has none

MAX_BYTES = 1 << 20
"""What Linux lets every user have; a pipe begins with 64 KiB."""


def wide_pipe() -> tuple[Connection, Connection]:
    """Return the two ends of a pipe: for receiving, and for sending."""
    from fcntl import F_SETPIPE_SZ, fcntl
    from multiprocessing import Pipe

    receiver, sender = Pipe(duplex=False)
    with suppress(OSError):  # the user has too many of them
        fcntl(sender.fileno(), F_SETPIPE_SZ, MAX_BYTES)
    return receiver, sender


def receive(receiver: Connection) -> Any:
    """Return the next message. EOFError once the sending process has ended, even if it ended inside a message."""
    try:
        return receiver.recv()
    except OSError as error:
        raise EOFError from error
