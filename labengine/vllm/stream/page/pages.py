"""The open pages: each has a view of every stream, and the messages that wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from threading import Lock
from typing import Any

from labengine.config import ConfigError
from labengine.live_page.page_view import PageView
from labengine.vllm.stream.page.frame_queue import FrameQueue
from labengine_widgets.feed.feed import Feed

MAX_PAGES = 4
"""Pages that are open at once: each holds a connection, and a browser makes six to one server."""


class OpenPage:
    """One open page: a view of each feed, all on one connection."""

    def __init__(self, feeds: Sequence[Feed]) -> None:
        self.queue = FrameQueue()
        self._views = [PageView([feed], partial(self.queue.put, number)) for number, feed in enumerate(feeds)]

    def receive(self, messages: object) -> None:
        """Take messages of the page, each for one dashboard. What is not well formed is left out."""
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
    """The pages that are open, by the name that each has given itself."""

    def __init__(self, feeds: Sequence[Feed]) -> None:
        self._feeds, self._open = feeds, dict[str, OpenPage]()
        self._guard = Lock()

    def opened(self, name: str) -> OpenPage:
        """Open a page. Raises ConfigError if too many are open, or one of this name."""
        with self._guard:
            if name in self._open or len(self._open) >= MAX_PAGES:
                raise ConfigError(f"{len(self._open)} pages are open: close one of them, and reload this one")
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
