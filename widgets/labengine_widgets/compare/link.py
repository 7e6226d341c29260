"""A comparison's end of the protocol: the feeds of both labs send the events, it sends the captions."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

from labengine.record.files.codec import dumps
from labengine_widgets.compare.captions import PairDocument
from labengine_widgets.feed.browser_link import BrowserLink, checked_command
from labengine_widgets.feed.feed import Feed
from labengine_widgets.feed.payload import packed
from labengine_widgets.view_source import PairViewSource

FOLLOW_UP = "follow_up"
"""The command that only a comparison has."""


class PairLink(BrowserLink):
    """As BrowserLink, for a comparison."""

    def follow(self, source: PairViewSource) -> None:
        """Begin with the captions of this comparison."""
        self.compared, self.document = source, PairDocument(source)
        self._guard = threading.RLock()
        self._is_pending = False

    def send_new_soon(self) -> None:
        """Send the new captions as soon as the feeds have sent the events. Called from any thread."""
        if not self._is_pending:
            self._is_pending = True
            self.feeds[1].post(self._send_new)

    def show_position(self, position: int | None) -> None:
        """Have every browser half show the state after that many captions; None: the newest."""
        self.send({"type": "position", "position": position, "side": 0})

    def show_moment(self, side: int, moment: int) -> None:
        """Have every browser half show the position of one side's moment, once all captions up to it are sent."""
        self.feeds[1].post(lambda: self._show_moment(side, moment))

    def show_moments(self, moments: tuple[int, int] | None) -> None:
        """Have every browser half show both sides' moments, once their captions are sent; None: the newest."""
        self.feeds[1].post(lambda: self._show_moments(moments))

    def _send_new(self) -> None:
        self._is_pending = False
        with self._guard:
            first = None if self.compared.is_going_back else self.document.grow()
            if first is None:
                return
            payload = self.document.payload(first) | {"is_followed": self.feeds[1].is_following}
            self.send({"type": "compare", "side": 0, "view": None}, [dumps(payload)])

    def _show_moment(self, side: int, moment: int) -> None:
        self._send_new()
        with self._guard:
            self.show_position(self.document.captions.number_at(side, moment))

    def _show_moments(self, moments: tuple[int, int] | None) -> None:
        self._send_new()
        with self._guard:
            number_at = self.document.captions.number_at
            self.show_position(None if moments is None else max(number_at(side, moments[side]) for side in (0, 1)))

    def receive(self, content: object) -> None:
        """As BrowserLink.receive; the captions are sent again, too, where a browser half asks for everything."""
        super().receive(content)
        if isinstance(content, dict) and content.get("type") == "resync":
            self.feeds[1].post(lambda: self.send_all(str(content.get("view"))))

    def send_all(self, view: str | None = None) -> None:
        """Send all captions to the browser half of this id; None: to every one."""
        with self._guard:
            if not self.compared.is_going_back:
                self.document.grow()
            self.send({"type": "compare", "side": 0, "view": view}, [dumps(self.document.payload())])

    def _post_command(self, feed: Feed, content: dict[str, Any]) -> Future[Any]:
        """Post a command of the browser half to both labs."""
        action, arguments = (FOLLOW_UP, {}) if content.get("action") == FOLLOW_UP else checked_command(content)
        return self.compared.post_command(action, **arguments)


# -- sliders: a run with other figures replaces the one that a view shows ----------------------------------------------


def send_run(link: BrowserLink) -> None:
    """Send all of the recordings that a view follows now to every browser half, which starts over with them."""
    for side, feed in enumerate(link.feeds):
        link.send({"type": "full", "side": side, "view": None}, [packed(feed.full())])
    if isinstance(link, PairLink):
        link.send_all()


def varied_message(varied: dict[str, Any] | None, error: str = "") -> dict[str, Any]:
    """Return the message on the newest run, and on why there is no newer one. varied: Varied.to_dict(), or None."""
    return {"type": "varied", "side": 0, "varied": varied, "error": error}


def checked_changes(changes: object) -> dict[str, int]:
    """Return a browser's changes. Raises ValueError for any that its sliders cannot have sent."""
    if not isinstance(changes, dict) or not all(type(value) is int and value < 10**6 for value in changes.values()):
        raise ValueError("the sliders must send integers")
    return changes
