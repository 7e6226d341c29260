"""The compare view: two recordings side by side, told beat by beat, with the place at which they part."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from gzip import compress
from typing import Any

from labengine.trace.codec import dumps
from labengine_widgets.compare.captions import Joint
from labengine_widgets.feed.feed import Feed
from labengine_widgets.feed.messages import checked_wish
from labengine_widgets.feed.payload import full_payload
from labengine_widgets.pictures.ascii import block_map
from labengine_widgets.view import View
from labengine_widgets.view_source import PairViewSource as PairViewSource

MAX_SAVED_EVENTS = 3_000
"""A side with more events is not kept in a saved notebook."""

MAX_SAVED = 150_000
"""Bytes that a saved notebook keeps of a compare view, in all."""

LATER = "later"
"""The one wish that only a comparison knows."""


class CompareView(View):
    """Both sides of a comparison, fed by their labs' feeds; the beats that join them are told here."""

    def __init__(self, source: PairViewSource, feeds: Sequence[Feed] | None = None) -> None:
        self.compared, self.joint = source, Joint(source)
        self._guard = threading.RLock()
        self._is_pending = False
        super().__init__([*(feeds or source.view_sources)], {"kind": "compare", "views": []})

    def has_grown(self) -> None:
        """Something has happened on both sides: it is told as soon as the feeds have sent it. From any thread."""
        if not self._is_pending:
            self._is_pending = True
            self.feeds[1]._post(self._tell)

    def stand(self, beat: int | None) -> None:
        """Have every browser half stand after that many beats; None: at the newest."""
        self.send({"type": "position", "position": beat, "side": 0})

    def stand_at(self, side: int, moment: int) -> None:
        """Have every browser half stand where a side has reached a moment, when all up to there is told."""
        self.feeds[1]._post(lambda: self._stand_at(side, moment))

    def stand_at_both(self, moments: tuple[int, int] | None) -> None:
        """Have every browser half stand where both sides have reached their moments; None: at the newest."""
        self.feeds[1]._post(lambda: self._stand_at_both(moments))

    def rest(self) -> None:
        """Keep both recordings and the beats, where they are short enough."""
        with self._guard:
            kept = [_saved(feed) for feed in self.feeds] + [compress(dumps(self.joint.payload()), mtime=0)]
        self.saved = kept if all(kept) and sum(map(len, kept)) <= MAX_SAVED else [b"", b"", b""]

    def _tell(self) -> None:
        self._is_pending = False
        with self._guard:
            first = self.joint.grow()
            if first is None:
                return
            payload = self.joint.payload(first) | {"is_followed": self.feeds[1].is_following}
            self.send({"type": "compare", "side": 0, "view": None}, [dumps(payload)])

    def _stand_at(self, side: int, moment: int) -> None:
        self._tell()
        with self._guard:
            self.stand(self.joint.beats.number_at(side, moment))

    def _stand_at_both(self, moments: tuple[int, int] | None) -> None:
        self._tell()
        with self._guard:
            number_at = self.joint.beats.number_at
            self.stand(None if moments is None else max(number_at(side, moments[side]) for side in (0, 1)))

    def _receive(self, widget: object, content: object, buffers: object) -> None:
        super()._receive(widget, content, buffers)
        if isinstance(content, dict) and content.get("type") == "resync":
            self.feeds[1]._post(lambda: self._tell_all(str(content.get("view"))))

    def _tell_all(self, view: str) -> None:
        with self._guard:
            self.joint.grow()
            self.send({"type": "compare", "side": 0, "view": view}, [dumps(self.joint.payload())])

    def _wish(self, feed: Feed, side: int, content: dict[str, Any]) -> None:
        """Whatever is asked for is asked of both."""
        try:
            action, arguments = (LATER, {}) if content.get("action") == LATER else checked_wish(content)
            future = self.compared.post(action, **arguments)
        except Exception as error:
            self._answer(feed, side, content, error)
        else:
            future.add_done_callback(lambda done: self._answer(feed, side, content, done.exception()))

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
    payload = full_payload(feed.view_source, timeline, start, end) | {"code": {}, "told": [], "rest": None}
    return compress(dumps(payload), mtime=0)
