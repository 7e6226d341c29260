"""The messages that wait for one open page. A page that does not read loses the newest events, and asks for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from struct import pack
from threading import Condition
from typing import Any

from labengine.record.files.codec import dumps

MAX_BYTES = 8 << 20
"""Bytes of waiting messages beyond which new events are not queued: the page misses them, and asks for all."""

SECONDS_BETWEEN_SIGNS = 1.0
"""A page without messages gets an empty frame as often: writing it fails once the page is closed."""

SIGN_OF_LIFE = pack(">II", 0, 0)


class FrameQueue:
    """A queue of frames for one page. Any thread puts, one thread takes.

    A frame: the lengths of a JSON text and of a buffer, 4 bytes each, then both. max_bytes: beyond it events are left
    out; at four times as much the queue closes, for the page does not read.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.is_closed = False
        self._max_bytes, self._num_bytes = max_bytes, 0
        self._frames: deque[bytes] = deque()
        self._changed = Condition()

    def put(self, number: int, content: dict[str, Any], buffers: list[bytes] | None) -> None:
        """Queue a message for the dashboard of this number."""
        text, data = dumps({"number": number, "content": content}), b"".join(buffers or [])
        with self._changed:
            if self.is_closed or (self._num_bytes > self._max_bytes and _is_news(content)):
                return
            frame = pack(">II", len(text), len(data)) + text + data
            self._frames.append(frame)
            self._num_bytes += len(frame)
            self.is_closed = self._num_bytes > 4 * self._max_bytes
            self._changed.notify()

    def frames(self) -> Iterator[bytes]:
        """Yield frames as they come, and signs of life in between, until `close`."""
        while not self.is_closed:
            with self._changed:
                if not self._frames:
                    self._changed.wait(SECONDS_BETWEEN_SIGNS)
                frame = self._frames.popleft() if self._frames else SIGN_OF_LIFE
                self._num_bytes -= len(frame) if frame is not SIGN_OF_LIFE else 0
            if not self.is_closed:
                yield frame

    def close(self) -> None:
        """End `frames`. Twice is harmless."""
        with self._changed:
            self.is_closed = True
            self._changed.notify()


def _is_news(content: dict[str, Any]) -> bool:
    """True for events that every view gets: one that misses them asks for everything."""
    return content["type"] in ("more", "full") and not content.get("view")
