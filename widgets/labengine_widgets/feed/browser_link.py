"""One view's end of the protocol with its browser halves, whatever carries the messages."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future
from typing import Any

from labengine_widgets.feed.feed import Feed
from labengine_widgets.feed.messages import checked_command


class BrowserLink:
    """Receives the messages of a view's browser halves: commands go to the lab, all else to the feed of its side."""

    feeds: list[Feed]
    """The feed of each side: one, or two in a comparison."""

    def receive(self, content: object) -> None:
        """Post a message of the browser, on any thread; the Future of the post reports errors."""
        if not isinstance(content, dict):
            return
        kind, side = content.get("type"), content.get("side") or 0
        if not isinstance(kind, str) or type(side) is not int or side not in range(len(self.feeds)):
            return
        if kind == "command":
            self._run_command(self.feeds[side], content)
        else:
            self.feeds[side].receive(self, side, content)

    # -- of the view: how messages travel ------------------------------------------------------------------------------

    def send(self, content: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        """Send a message to every browser half of this view."""
        raise NotImplementedError

    def close(self) -> None:
        """Detach the view from its lab and remove it from the page; the lab goes on."""
        raise NotImplementedError

    def update_saved(self) -> None:
        """Refresh what a saved page keeps; the lab has paused."""
        raise NotImplementedError

    # -- commands ------------------------------------------------------------------------------------------------------

    def _run_command(self, feed: Feed, content: dict[str, Any]) -> None:
        try:
            future = self._post_command(feed, content)
        except Exception as error:
            self._answer(feed, content, error)
        else:
            future.add_done_callback(lambda done: self._answer(feed, content, _error_of(done)))

    def _post_command(self, feed: Feed, content: dict[str, Any]) -> Future[Any]:
        """Post a command of the browser half to the lab. Raises an exception for a command that it does not have."""
        action, arguments = checked_command(content)
        return feed.view_source.post(action, **arguments)

    def _answer(self, feed: Feed, content: dict[str, Any], error: BaseException | None) -> None:
        message = {"type": "answer", "action": content.get("action"), "view": str(content.get("view")), "error": None}
        if error is not None:
            message["error"] = str(error) or type(error).__name__
        feed.publish_soon()
        feed.say(message)


def _error_of(done: Future[Any]) -> BaseException | None:
    try:
        return done.exception()
    except CancelledError as error:
        return error
