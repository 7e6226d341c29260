"""The protocol of sliders: a run with other figures takes the place of the one that a view shows, one side or two."""

from __future__ import annotations

from typing import Any

from labengine_widgets.compare.link import PairLink
from labengine_widgets.feed.browser_link import BrowserLink
from labengine_widgets.feed.payload import packed


def send_run(link: BrowserLink) -> None:
    """Send all of the recordings that a view follows now to every browser half, which begins with them anew."""
    for side, feed in enumerate(link.feeds):
        link.send({"type": "full", "side": side, "view": None}, [packed(feed.full())])
    if isinstance(link, PairLink):
        link.send_all()


def varied_message(varied: dict[str, Any] | None, error: str = "") -> dict[str, Any]:
    """Return the message on the newest run, and on why there is no newer one. varied: Varied.to_dict(), or None."""
    return {"type": "varied", "side": 0, "varied": varied, "error": error}


def checked_changes(changes: object) -> dict[str, int]:
    """Return what a browser asks for. ValueError for what its sliders cannot have sent."""
    if not isinstance(changes, dict) or not all(type(value) is int and value < 10**6 for value in changes.values()):
        raise ValueError("the sliders send whole numbers")
    return changes
