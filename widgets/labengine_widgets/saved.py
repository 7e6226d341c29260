"""What a saved notebook keeps of a view: its last step, small."""

from __future__ import annotations

from gzip import compress
from typing import TYPE_CHECKING, Any

from labengine.trace.codec import dumps
from labengine_widgets.payload import full_payload, step_start

if TYPE_CHECKING:
    from labengine_widgets.feed import Feed

MAX_SAVED = 100_000
"""Bytes of state that a saved notebook keeps per side of a view."""

MAX_BLOCKS = 16_384
"""A larger pool is not saved: its picture is, as an SVG."""


def saved_bytes(feed: Feed) -> bytes:
    """The last step as a gzipped `full` payload, without the code; nothing when it would be too long."""
    timeline = feed.timeline
    if timeline is None:
        return b""
    end = timeline.end
    start = step_start(timeline, end)
    state = timeline.state(start)
    if len(state.ref_counts) > MAX_BLOCKS or end - start > MAX_BLOCKS:
        return b""
    told = feed.signed_words(start, end)
    payload: dict[str, Any] = full_payload(feed.view_source, timeline, start, end, told)
    payload["header"]["code"] = {}
    payload["stand"] = None if feed.view_source.is_live else feed.moment
    payload |= {"told": [[start, end]] if told else [], "rest": feed.rest_sentence(end)}
    data = compress(dumps(payload), compresslevel=3, mtime=0)
    return data if len(data) <= MAX_SAVED else b""
