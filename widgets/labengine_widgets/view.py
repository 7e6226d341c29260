"""Widgets that show a recording: the base class of all views, and the dashboard of one lab."""

from __future__ import annotations

from collections.abc import Sequence
from gzip import compress
from typing import Any
from uuid import uuid4

import anywidget
import traitlets

from labengine.record.files.codec import dumps
from labengine_widgets.browser import DASHBOARD, Arrangement, css, esm
from labengine_widgets.feed.browser_link import BrowserLink
from labengine_widgets.feed.feed import Feed, feed_of
from labengine_widgets.feed.payload import Payload, full_payload, step_start
from labengine_widgets.front_end import display_with_picture, keep_by_owner
from labengine_widgets.pictures.ascii import block_map
from labengine_widgets.pictures.svg import block_map_svg
from labengine_widgets.view_source import ViewSource
from labengine_widgets.words.captions import Caption


class View(BrowserLink, anywidget.AnyWidget):
    """Base of all widgets of a lab; any number of them may show the same one.

    It receives from the lab's feed and posts commands to the lab, and touches nothing else. A view displayed twice
    is one view. `close()` ends it.
    """

    _esm = esm()
    _css = css()
    arrangement = traitlets.Dict().tag(sync=True)
    """The layout to show."""
    picture = traitlets.Unicode().tag(sync=True)
    """Token of this view's saved pictures in a page; the browser half hides them while the view exists."""
    saved = traitlets.List(traitlets.Bytes()).tag(sync=True)
    """State for a saved notebook: the last step of each side, refreshed when the lab pauses."""

    def __init__(self, source: Feed | ViewSource | Sequence[Feed | ViewSource], arrangement: Arrangement) -> None:
        super().__init__(arrangement=arrangement, picture=uuid4().hex)
        sources = source if isinstance(source, Sequence) else [source]
        self.feeds = [one if isinstance(one, Feed) else feed_of(one) for one in sources]
        self.on_msg(self._receive)
        for side, feed in enumerate(self.feeds):
            feed.attach(self, side)
        self.update_saved()

    @property
    def view_source(self) -> ViewSource:
        """The source of the shown lab; in a comparison, of the left one."""
        return self.feeds[0].view_source

    def open(self) -> None:
        """Open the connection to a front end, if it is not open."""
        anywidget.AnyWidget.open(self)
        keep_by_owner(self)

    def close(self) -> None:
        """Detach the view from its lab and remove it from the page; the lab goes on. A second call has no effect."""
        for feed in self.feeds:
            feed.detach(self)
        anywidget.AnyWidget.close(self)
        self.layout.close()  # a separate model, with a comm

    def update_saved(self) -> None:
        """Save the shown state, for front ends that open later and for saved notebooks."""
        self.saved = [saved_bytes(feed) for feed in self.feeds]

    def send(self, content: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        """Send a message to every browser half of this widget; ignored once it is closed."""
        if self.comm is not None:
            anywidget.AnyWidget.send(self, content, buffers)

    def _receive(self, _widget: object, content: object, _buffers: object) -> None:
        self.receive(content)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        snapshot = self.view_source.fold().snapshot()
        timeline = self.feeds[0].timeline
        data["text/plain"] = block_map(snapshot, timeline)
        data["image/svg+xml"] = block_map_svg(snapshot, self.view_source.token_text, self.view_source.title, timeline)
        return data, metadata

    def _ipython_display_(self) -> None:
        bundle = self._repr_mimebundle_()
        if bundle is not None:
            display_with_picture(bundle, self.picture)


MAX_SAVED = 100_000
"""Bytes of state that a saved notebook keeps per side of a view."""

MAX_BLOCKS = 16_384
"""Maximum number of blocks to save as state; a larger pool is saved as its SVG picture only."""


def saved_bytes(feed: Feed) -> bytes:
    """Return the last step as a gzipped `full` payload, without source code; empty when it would be too long."""
    timeline = feed.timeline
    if timeline is None:
        return b""
    end = timeline.end
    start = step_start(timeline, end)
    state = timeline.state(start)
    if len(state.ref_counts) > MAX_BLOCKS or end - start > MAX_BLOCKS:
        return b""
    captions = feed.captions(start, end)
    payload = payload_without_code(feed, start, end, captions)
    payload["shown"] = None if feed.view_source.is_live else feed.moment
    payload |= {"captioned": [[start, end]] if captions else [], "opening": feed.opening_caption(end)}
    data = compress(dumps(payload), compresslevel=3, mtime=0)
    return data if len(data) <= MAX_SAVED else b""


def payload_without_code(feed: Feed, start: int, end: int, captions: Sequence[Caption] = ()) -> Payload:
    """Return a `full` payload to save: its header has no source code, which an open kernel sends again."""
    payload = full_payload(feed.view_source, feed.recording, start, end, captions)
    payload["header"]["code"] = {}
    return payload


LOOK_AHEAD = 1_000
"""Events searched after the one to show for the end of its run, because views show a run as one."""


class Dashboard(View):
    """All views of one lab at once, or those named; any number of dashboards may show the same lab."""

    def __init__(self, source: Feed | ViewSource, views: Sequence[str] = ()) -> None:
        super().__init__(source, {**DASHBOARD, "views": [*views]})

    def open_at(self, moment: int) -> None:
        """Show the state right after event number `moment` of the timeline, until the lab moves on.

        For a moment that is no longer recorded it shows the present state.
        """
        feed = self.feeds[0]
        timeline = feed.timeline
        if timeline is None or not timeline.num_dropped <= moment < timeline.end:
            return feed.show_moment(None)
        captions = feed.captions(step_start(timeline, moment), min(timeline.end, moment + LOOK_AHEAD))
        feed.show_moment(next((at for at, _, _ in captions if at > moment), moment + 1))
