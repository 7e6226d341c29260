"""A whole recording as one document: what a page without Python shows, and the words and answers it takes along."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from labengine import events as ev
from labengine.fold import Fold
from labengine.timeline import Timeline
from labengine.trace.codec import KINDS, Row, dumps, keyframe, rows
from labengine.trace.recorded_timeline import RecordedTimeline, rows_between
from labengine.wording import readable
from labengine_widgets.feed.payload import Payload, header, status, texts, tokens_of_state
from labengine_widgets.view_source import ViewSource
from labengine_widgets.why import answers_along, carried_answers
from labengine_widgets.words.captions import MAX_CAPTIONED, CaptionWriter
from labengine_widgets.words.scene import kept_contents

SHORT = 2_000
"""Events of a lesson: answers along the whole way are carried, not only about its end."""

_ADDED, _SAMPLED = (ev.EVENT_KINDS.index(kind) for kind in (ev.RequestAdded, ev.TokenSampled))
_TOKENS, _TOKEN = KINDS[_ADDED].index("token_ids"), KINDS[_SAMPLED].index("token_id")


def recording_payload(source: ViewSource, *, has_words: bool = True) -> bytes:
    """The recording from its oldest moment on as a `full` payload in JSON, for `mount` of the browser half.

    With a sentence per beat where there are at most MAX_TOLD events, unless has_words is False: a longer recording, and
    one that somebody else tells, is told event by event by the page itself. No event is made of a saved recording.
    """
    timeline = source.timeline or Timeline.starting_at(source.fold())
    start, state, events = _kept(timeline)
    end = start + len(events)
    captions = _captions(timeline, source, start, end) if has_words else []
    payload: Payload = {
        "header": header(source, timeline) | {"is_live": False, "is_recorded": True, "first": start},
        "start": start,
        "keyframe": keyframe(state),
        "events": events,
        "texts": texts(source, {*tokens_of_state(state), *_tokens_of(events)}),
        "tier": kept_contents(timeline, start),
        "seconds": sorted(timeline.step_seconds.items()),
        "captions": captions,
        "captioned": [[start, end]] if captions else [],
        "status": status(source) | {"running": False, "phase": None},
        "selection": None,
        "shown": None,
    }
    payload["header"]["answers"] = answers(timeline, source.seams())
    payload["header"]["title"] = payload["status"]["title"] = readable(source.title)
    return dumps(payload)


def answers(timeline: Timeline, seams: dict[str, Any]) -> list[dict[str, Any]]:
    """What a reader is likeliest to ask of it, in the order of the moments that the answers hold for.

    Of a long recording, answered from its newest events: an answer that began earlier says that it did.
    """
    is_short = timeline.end - timeline.num_dropped <= SHORT
    return answers_along(timeline, seams) if is_short else carried_answers(Newest(timeline), seams)


class Newest:
    """The newest events of a recording, as all there is: a chain of causes is not followed through a day's work."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.end = timeline.end
        self.num_dropped = max(timeline.num_dropped, self.end - SHORT)

    def events(self, start: int | None = None, stop: int | None = None) -> Sequence[ev.Event]:
        """The events between two moments, as far as they are among the newest."""
        low = self.num_dropped if start is None else max(start, self.num_dropped)
        return self._timeline.events(low, self.end if stop is None else stop)

    def state(self, moment: int | None = None) -> Fold:
        """The state at a moment."""
        return self._timeline.state(moment)

    def of_kind(self, kind: type[ev.ViolationFound]) -> list[ev.ViolationFound]:
        """The events of one kind among the newest."""
        return self._timeline.of_kind(kind, self.num_dropped, self.end)


def _kept(timeline: Timeline) -> tuple[int, Fold, Sequence[Row]]:
    """The oldest moment, the state there, and the rows of all events since."""
    if isinstance(timeline, RecordedTimeline):
        return timeline.num_dropped, timeline.state(timeline.num_dropped), rows_between(timeline)
    start, state, events = timeline.kept()
    return start, state, rows(events)


def _captions(timeline: Timeline, source: ViewSource, start: int, end: int) -> list[Any]:
    return (
        CaptionWriter(timeline, source.token_text, signs=True).captions(start, end)
        if end - start <= MAX_CAPTIONED
        else []
    )


def _tokens_of(events: Sequence[Row]) -> Iterator[int]:
    """The tokens that rows of events bring."""
    for row in events:
        if row[0] == _SAMPLED:
            yield row[_TOKEN]
        elif row[0] == _ADDED:
            yield from row[_TOKENS]
