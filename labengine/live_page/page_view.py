"""A view whose messages go to a page without Jupyter, over any transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labengine_widgets.feed.browser_link import BrowserLink
from labengine_widgets.feed.feed import Feed

BYTES_A_SECOND = 10_000_000
"""Maximum average rate to a page. It is high because no Jupyter server, which would drop messages, is in between."""

Send = Callable[[dict[str, Any], list[bytes]], object]


class PageView(BrowserLink):
    """The view of one lab; it posts its messages to the page."""

    def __init__(self, feeds: list[Feed], send: Send) -> None:
        self.feeds = feeds
        self._send = send
        for side, feed in enumerate(feeds):
            feed.attach(self, side, BYTES_A_SECOND)

    def send(self, content: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        """Post a message to the page."""
        self._send(content, buffers or [])

    def close(self) -> None:
        """Detach from the lab."""
        for feed in self.feeds:
            feed.detach(self)

    def update_saved(self) -> None:
        """Do nothing: such a page is not saved."""
