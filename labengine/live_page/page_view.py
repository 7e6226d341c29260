"""A view whose messages go to a page without Jupyter, whatever carries them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labengine_widgets.feed.browser_link import BrowserLink
from labengine_widgets.feed.feed import Feed

BYTES_A_SECOND = 10_000_000
"""Upper bound of the average rate to a page: no Jupyter server is in between, which would drop messages."""

Send = Callable[[dict[str, Any], list[bytes]], object]


class PageView(BrowserLink):
    """The view of one lab, whose messages are posted to its page."""

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
        """Keep nothing: such a page is not saved."""
