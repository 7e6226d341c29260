"""The Python half of the live page: opens sessions and exchanges messages with their views as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from labengine.config import ConfigError
from labengine.engine.wasm.memory import Kernels
from labengine.engine.wasm.model import load_in_page
from labengine.lab import Lab
from labengine.live_page.page_view import PageView, Send
from labengine.live_page.permalink import permalink_of
from labengine.live_page.session import OpenSession, SessionSliders, open_session, sliders_of
from labengine.record.files.codec import dumps
from labengine.record.wording import readable
from labengine.session.compare.comparison import Comparison
from labengine_widgets.browser import COMPARE, DASHBOARD
from labengine_widgets.compare.link import FOLLOW_UP, PairLink, checked_changes, send_run, varied_message
from labengine_widgets.feed.feed import Feed, feed_of

MAX_REFUSAL = 4_000
"""Most characters of an error message: the longest lists all scenarios."""

Post = Callable[[str, str, list[bytes]], object]
"""post(kind, content as JSON, buffers) to the page. Kinds: opened, refused, permalink, and message for a view."""


class LivePage:
    """The page with its one session, which another session can replace."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._session: OpenSession | None = None
        self._view: PageView | PagePair | None = None
        self._sliders: SessionSliders | None = None

    def open(self, query: str) -> None:
        """Open the session that a URL names, and close the previous one; if it cannot be opened, that one stays."""
        try:
            session = open_session(permalink_of(query))
        except Exception as error:  # report any error of a URL in the page
            self._say("refused", {"message": readable(str(error) or type(error).__name__, MAX_REFUSAL)})
            return
        self.close()
        self._session = session
        self._view = _view_of(session, self._send)
        kind = DASHBOARD if isinstance(session.shown, Lab) else COMPARE
        arrangement = {**kind, "varied": self._new_sliders(session)}
        self._say("opened", {"arrangement": arrangement, "query": session.permalink().query()})

    def load_model(self, kernels: Kernels, at: int, num_bytes: int, name: str, digest: str) -> str:
        """Load a model whose GGUF is in the kernels' memory; return the reason if that fails, else an empty text."""
        try:
            load_in_page(kernels, at, num_bytes, name, digest)
        except Exception as error:  # report any error of the site's files in the page
            return readable(str(error) or type(error).__name__, MAX_REFUSAL)
        return ""

    def receive(self, message: str) -> None:
        """Handle a message of the browser half; types "open", "permalink" and "vary" are for the page itself."""
        content: dict[str, Any] = json.loads(message)
        if content["type"] == "open":
            self.open(content["query"])
        elif content["type"] == "permalink":
            self._say_link()
            self._offer_sliders()
        elif content["type"] == "vary":
            self._vary(content["changes"])
        elif self._view is not None:
            self._view.receive(content)

    def close(self) -> None:
        """Close the session, and the one whose workload the sliders vary."""
        self._close_shown()
        if self._sliders is not None:
            self._sliders.of.shown.close()
        self._sliders = None

    def _close_shown(self) -> None:
        if self._session is not None and self._view is not None:
            self._view.close()
            if self._sliders is None or self._sliders.of is not self._session:
                self._session.shown.close()
        self._session = self._view = None

    # -- sliders: another session replaces this one in the same picture ------------------------------------------------

    def _vary(self, changes: object) -> None:
        if self._sliders is None:
            return
        try:
            session = self._sliders.changed(checked_changes(changes))
        except Exception as error:  # impossible figures
            self._send(varied_message(self._sliders.to_dict(), readable(str(error), MAX_REFUSAL)), [])
            return
        self._close_shown()
        self._session = session
        self._view = _view_of(session, self._send)
        send_run(self._view)
        self._send(varied_message(self._sliders.to_dict()), [])
        self._say_link()

    def _offer_sliders(self) -> None:
        """Show sliders for the session's workload, unless the page has them already."""
        session = self._session
        if session is not None and not (self._sliders is not None and self._sliders.is_of(session)):
            self._send(varied_message(self._new_sliders(session)), [])

    def _new_sliders(self, session: OpenSession) -> dict[str, Any] | None:
        """Make sliders for the session's current workload; None if it has none that can be run again."""
        if self._sliders is not None and self._sliders.of is not session:
            self._sliders.of.shown.close()
        self._sliders = sliders_of(session)
        return None if self._sliders is None else self._sliders.to_dict()

    def _say_link(self) -> None:
        if self._session is not None:
            with suppress(ConfigError):  # the address keeps the last state that a link can repeat
                self._say("permalink", {"query": self._session.permalink().query()})

    def _say(self, kind: str, content: dict[str, Any]) -> None:
        self._post(kind, dumps(content).decode(), [])

    def _send(self, content: dict[str, Any], buffers: list[bytes]) -> None:
        self._post("message", dumps(content).decode(), buffers)


class PagePair(PairLink, PageView):
    """The view of a comparison."""

    def __init__(self, session: OpenSession, comparison: Comparison, send: Send) -> None:
        self._session = session
        self.follow(comparison)
        super().__init__([feed_of(side) for side in comparison.view_sources], send)
        comparison.show_in(self)

    def _post_command(self, feed: Feed, content: dict[str, Any]) -> Future[Any]:
        future = super()._post_command(feed, content)
        if content.get("action") == FOLLOW_UP:
            future.add_done_callback(self._note_follow_up)
        return future

    def _note_follow_up(self, done: Future[Any]) -> None:
        if done.exception() is None:
            self._session.note_follow_up()


def _view_of(session: OpenSession, send: Send) -> PageView | PagePair:
    if isinstance(session.shown, Lab):
        return PageView([session.shown.feed], send)
    return PagePair(session, session.shown, send)
