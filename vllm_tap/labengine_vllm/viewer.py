"""One viewer on a socket: its waiting data, and whether it follows the stream."""

from __future__ import annotations

import hmac
import json
from collections import deque
from socket import socket
from time import monotonic
from typing import Any

MAX_WAITING_BYTES = 32 << 20
"""Most bytes waiting for a viewer; a single line may be longer."""

MAX_RECEIVED_BYTES = 256
"""Most bytes read from a viewer, which sends one secret and, now and then, KEYFRAME."""

KEYFRAME = b"keyframe"
"""The one request of a viewer: a keyframe, to check its fold against."""

SECONDS_TO_ADMIT = 5.0
"""Seconds within which the secret must come."""

NO_BYTES = memoryview(b"")


class ViewerGone(Exception):
    """Raised if the viewer has closed its end, or has sent anything unexpected."""


class Viewer:
    """One connection. It follows the stream from a keyframe on; a message that does not fit ends that until the next.

    secret: to be sent first by the viewer; None if the file system decides who may connect. header: its first line.
    """

    def __init__(self, connection: socket, secret: str | None, header: bytes) -> None:
        self.connection = connection
        self.is_admitted = self.is_following = self.asks = False
        self._secret, self._header = secret, header
        self._admit_by = monotonic() + SECONDS_TO_ADMIT
        self._received = b""
        self._waiting: deque[bytes] = deque()
        self._head = NO_BYTES
        """The rest of the line being sent."""
        self._num_waiting = 0
        self._has_followed = False
        self._num_dropped = 0
        if secret is None:
            self._admit()

    @property
    def wants_keyframe(self) -> bool:
        """True if it asks for a keyframe, or needs one and has read everything sent before."""
        return self.is_admitted and (self.asks or not (self.is_following or self.has_waiting))

    @property
    def has_waiting(self) -> bool:
        """True if bytes wait to be sent."""
        return bool(self._head or self._waiting)

    @property
    def is_overdue(self) -> bool:
        """True if the secret has not come in time."""
        return not self.is_admitted and monotonic() > self._admit_by

    def receive(self) -> None:
        """Read received data. Raises ViewerGone or OSError."""
        data = self.connection.recv(MAX_RECEIVED_BYTES)
        if not data:
            raise ViewerGone
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            self._take(line)
        if len(self._received) > MAX_RECEIVED_BYTES:
            raise ViewerGone

    def _take(self, line: bytes) -> None:
        if not self.is_admitted:
            if self._secret is None or not hmac.compare_digest(line, self._secret.encode()):
                self.refuse(
                    "the secret is wrong: it may be from an earlier engine on the same port, or from another user"
                )
                raise ViewerGone
            self._admit()
        elif line == KEYFRAME:
            self.asks = True
        else:
            raise ViewerGone

    def _admit(self) -> None:
        self.is_admitted = True
        self.put(self._header, 0)

    def refuse(self, why: str) -> None:
        """Send the reason of a refusal, as far as that is possible at once."""
        self.put(json.dumps({"refused": why}).encode(), 0)
        self.send()

    def put(self, line: bytes, num_events: int) -> None:
        """Queue a line, or drop it if too much waits; the viewer then no longer follows."""
        if self.has_waiting and self._num_waiting + len(line) > MAX_WAITING_BYTES:
            self.is_following = False
            self._num_dropped += num_events
            return
        self._waiting.append(line + b"\n")
        self._num_waiting += len(line) + 1

    def miss(self, num_events: int) -> None:
        """Count events that were not put because the viewer does not follow."""
        self._num_dropped += num_events if self._has_followed else 0

    def follow(self) -> dict[str, Any] | None:
        """Follow from a keyframe that is put next. Returns the loss before it, or None."""
        lost = None
        if self._has_followed and not self.is_following:
            lost = {"why": "this viewer reads too slowly", "num_events": self._num_dropped, "num_steps": 0}
        self.is_following = self._has_followed = True
        self.asks, self._num_dropped = False, 0
        return lost

    def send(self) -> None:
        """Send as much as the system accepts now. Raises OSError for a viewer that is gone."""
        while self.has_waiting:
            if not self._head:
                self._head = memoryview(self._waiting.popleft())
            try:
                num_sent = self.connection.send(self._head)
            except BlockingIOError:
                return
            self._head = self._head[num_sent:]
            self._num_waiting -= num_sent
