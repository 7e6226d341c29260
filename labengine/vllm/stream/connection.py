"""A connection to the tap on a running vLLM: receives lines, and sends only a secret and requests for a keyframe."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import suppress

from labengine.config import ConfigError
from labengine.record.wording import readable
from labengine.vllm.stream.endpoints import Endpoint
from labengine.vllm.stream.files import MAX_LINE_BYTES

SECONDS_TO_CONNECT = 5.0
MAX_HEADER_BYTES = 1 << 20
"""Most bytes of the first line, which alone shows that a tap is at the other end."""


class Connection:
    """A viewer's end of a socket. Raises ConfigError for an endpoint that does not answer."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.place = endpoint.place
        self._socket = _connected(endpoint)
        self._is_closed = False

    def lines(self) -> Iterator[bytes]:
        """Yield complete lines until the other end, or `close`, ends the connection.

        Raises TimeoutError after the seconds of `wait_at_most`, and ConfigError when the tap refuses this viewer.
        """
        begun: list[bytes] = []
        """The received part of an incomplete line."""
        most, num_begun = MAX_HEADER_BYTES, 0
        while data := self._receive():
            first, *others = data.split(b"\n")
            begun.append(first)
            num_begun += len(first)
            for line in others:
                yield _checked(b"".join(begun), self.place)
                begun, num_begun, most = [line], len(line), MAX_LINE_BYTES
            if num_begun > most:
                raise ConfigError(f"{self.place} sent a line of more than {most:,} bytes: it is not labengine's tap")

    def wait_at_most(self, seconds: float | None) -> None:
        """Limit the time without a byte."""
        self._socket.settimeout(seconds)

    def ask_for_keyframe(self) -> None:
        """Ask the engine for its state, to check the events against it."""
        with suppress(OSError):
            self._socket.sendall(b"keyframe\n")

    def close(self) -> None:
        """End the connection; a thread waiting for a line stops waiting. Twice is harmless."""
        self._is_closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(1 << 18)
        except TimeoutError:
            raise
        except OSError:  # closed here, or the other end is gone
            return b""


def _checked(line: bytes, place: str) -> bytes:
    """Return a line. Raises ConfigError for a tap's refusal of this viewer."""
    if not line.startswith(b'{"refused"'):
        return line
    try:
        why = str(json.loads(line)["refused"])
    except (ValueError, LookupError):
        why = "it does not say why"
    raise ConfigError(f"{place} refused this viewer: {readable(why, 400)}")


def _connected(endpoint: Endpoint) -> socket.socket:
    is_port = isinstance(endpoint.address, int)
    connection = socket.socket(socket.AF_INET if is_port else socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(SECONDS_TO_CONNECT)
    try:
        connection.connect(("127.0.0.1", endpoint.address) if is_port else str(endpoint.address))
        if endpoint.secret:
            connection.sendall(endpoint.secret.encode() + b"\n")
    except OSError as error:
        connection.close()
        raise ConfigError(
            f"nothing answers at {endpoint.place} ({error.strerror or error}): is vLLM still running?"
        ) from error
    except BaseException:
        connection.close()
        raise
    return connection
