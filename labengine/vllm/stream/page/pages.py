"""The open pages, each with a view of every stream and its waiting messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from struct import pack
from threading import Condition, Lock
from typing import Any

from labengine.config import ConfigError
from labengine.live_page.page_view import PageView
from labengine.record.files.codec import dumps
from labengine_widgets.feed.feed import Feed

MAX_PAGES = 4
"""Most pages open at once. Each holds a connection, and a browser allows six per server."""


MAX_BYTES = 8 << 20
"""Bytes of waiting messages beyond which new events are not queued, so that the page must ask for all of them."""

SECONDS_BETWEEN_SIGNS = 1.0
"""Seconds between empty frames to a page without messages; writing one fails once the page is closed."""

SIGN_OF_LIFE = pack(">II", 0, 0)


class FrameQueue:
    """A queue of frames for one page. Any thread puts, one thread takes.

    A frame: the lengths of a JSON text and of a buffer, 4 bytes each, then both. max_bytes: beyond it events are left
    out; at four times this size the queue closes, because the page does not read.
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
        """Yield frames as they come, and empty frames in between, until `close`."""
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
    """Return True for events, which go to every view; a view that misses them asks for everything."""
    return content["type"] in ("more", "full") and not content.get("view")


class OpenPage:
    """One open page: a view of each feed, all on one connection."""

    def __init__(self, feeds: Sequence[Feed]) -> None:
        self.queue = FrameQueue()
        self._views = [PageView([feed], partial(self.queue.put, number)) for number, feed in enumerate(feeds)]

    def receive(self, messages: object) -> None:
        """Take messages of the page, each for one dashboard; ignore malformed ones."""
        for message in messages if isinstance(messages, list) else ():
            number = message.get("number") if isinstance(message, dict) else None
            if type(number) is int and 0 <= number < len(self._views):
                self._views[number].receive(message.get("content"))

    def close(self) -> None:
        """Detach the views, and end the connection."""
        self.queue.close()
        for view in self._views:
            view.close()


class Pages:
    """The open pages, by the name that each has chosen."""

    def __init__(self, feeds: Sequence[Feed]) -> None:
        self._feeds, self._open = feeds, dict[str, OpenPage]()
        self._guard = Lock()

    def opened(self, name: str) -> OpenPage:
        """Open a page. Raises ConfigError if too many pages, or one of this name, are open."""
        with self._guard:
            if name in self._open or len(self._open) >= MAX_PAGES:
                raise ConfigError(f"{len(self._open)} pages are open: close one of them and reload this one")
            page = self._open[name] = OpenPage(self._feeds)
            return page

    def closed(self, name: str) -> None:
        """Close a page. Twice is harmless."""
        with self._guard:
            page = self._open.pop(name, None)
        if page is not None:
            page.close()

    def receive(self, name: str, messages: Any) -> bool:
        """Take messages of a page. Returns False if it is not open."""
        page = self._open.get(name)
        if page is not None:
            page.receive(messages)
        return page is not None

    def close(self) -> None:
        """Close all of them."""
        for name in list(self._open):
            self.closed(name)
