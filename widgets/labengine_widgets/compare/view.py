"""The widget of a comparison: two recordings side by side, with captions and their first difference."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from gzip import compress
from typing import Any

from labengine.trace.codec import dumps
from labengine_widgets.browser import COMPARE
from labengine_widgets.compare.captions import PairDocument
from labengine_widgets.feed.feed import Feed
from labengine_widgets.feed.messages import checked_command
from labengine_widgets.pictures.ascii import block_map
from labengine_widgets.view import View, payload_without_code
from labengine_widgets.view_source import PairViewSource as PairViewSource

MAX_SAVED_EVENTS = 3_000
"""If a side has more events, the saved notebook keeps no state."""

MAX_SAVED = 150_000
"""Bytes that a saved notebook keeps of a compare view, in all."""

FOLLOW_UP = "follow_up"
"""The one command that only a comparison knows."""


class CompareView(View):
    """Both sides of a comparison. Their feeds send the events, this widget the captions of both."""

    def __init__(self, source: PairViewSource, feeds: Sequence[Feed] | None = None) -> None:
        self.compared, self.document = source, PairDocument(source)
        self._guard = threading.RLock()
        self._is_pending = False
        super().__init__([*(feeds or source.view_sources)], COMPARE)

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

    def update_saved(self) -> None:
        """Keep both recordings and the captions for a saved notebook, unless they are too long."""
        with self._guard:
            kept = [_saved(feed) for feed in self.feeds] + [compress(dumps(self.document.payload()), mtime=0)]
        self.saved = kept if all(kept) and sum(map(len, kept)) <= MAX_SAVED else [b"", b"", b""]

    def _send_new(self) -> None:
        self._is_pending = False
        with self._guard:
            first = self.document.grow()
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

    def _receive(self, widget: object, content: object, buffers: object) -> None:
        super()._receive(widget, content, buffers)
        if isinstance(content, dict) and content.get("type") == "resync":
            self.feeds[1].post(lambda: self._send_all(str(content.get("view"))))

    def _send_all(self, view: str) -> None:
        with self._guard:
            self.document.grow()
            self.send({"type": "compare", "side": 0, "view": view}, [dumps(self.document.payload())])

    def _post_command(self, feed: Feed, content: dict[str, Any]) -> Future[Any]:
        """Post a command of the browser half to both labs."""
        action, arguments = (FOLLOW_UP, {}) if content.get("action") == FOLLOW_UP else checked_command(content)
        return self.compared.post(action, **arguments)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        sides = zip(self.compared.names, self.compared.view_sources, strict=True)
        data["text/plain"] = "\n\n".join(
            f"{name}\n{block_map(source.fold().snapshot(), source.timeline)}" for name, source in sides
        )
        return data, metadata


def _saved(feed: Feed) -> bytes:
    timeline = feed.timeline
    if timeline is None or timeline.end - timeline.num_dropped > MAX_SAVED_EVENTS:
        return b""
    start, end = timeline.num_dropped, timeline.end
    return compress(dumps(payload_without_code(feed, start, end) | {"captioned": [], "opening": None}), mtime=0)
