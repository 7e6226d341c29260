"""The widget of a comparison: two recordings side by side, with captions and their first difference."""

from __future__ import annotations

from collections.abc import Sequence
from gzip import compress
from typing import Any

from labengine.record.files.codec import dumps
from labengine_widgets.browser import COMPARE
from labengine_widgets.compare.link import PairLink
from labengine_widgets.feed.feed import Feed
from labengine_widgets.pictures.ascii import block_map
from labengine_widgets.view import View, payload_without_code
from labengine_widgets.view_source import PairViewSource as PairViewSource

MAX_SAVED_EVENTS = 3_000
"""If a side has more events, the saved notebook keeps no state."""

MAX_SAVED = 150_000
"""Bytes that a saved notebook keeps of a compare view, in all."""


class CompareView(PairLink, View):
    """Both sides of a comparison. Their feeds send the events, this widget the captions of both."""

    def __init__(self, source: PairViewSource, feeds: Sequence[Feed] | None = None) -> None:
        self.follow(source)
        super().__init__([*(feeds or source.view_sources)], COMPARE)

    def update_saved(self) -> None:
        """Keep both recordings and the captions for a saved notebook, unless they are too long."""
        with self._guard:
            kept = [_saved(feed) for feed in self.feeds] + [compress(dumps(self.document.payload()), mtime=0)]
        self.saved = kept if all(kept) and sum(map(len, kept)) <= MAX_SAVED else [b"", b"", b""]

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
