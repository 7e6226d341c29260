"""A whole recording as one document, with captions and answers, for a page without Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from labengine import events as ev
from labengine.record.files.codec import KINDS, Row, dumps, rows
from labengine.record.files.keyframe import keyframe
from labengine.record.files.recorded_timeline import RecordedTimeline, rows_between
from labengine.record.fold import Fold
from labengine.record.timeline import Timeline
from labengine.record.wording import readable
from labengine_widgets.feed.payload import Payload, engine_ids_of, header, status, texts, tokens_of_state
from labengine_widgets.view_source import ViewSource
from labengine_widgets.why import EngineIds, answers_along, carried_answers
from labengine_widgets.words.captions import MAX_CAPTIONED, CaptionWriter, caption_rows
from labengine_widgets.words.tier import kept_contents

SHORT = 2_000
"""Up to this many events, a page gets answers about every moment, not only about the end."""

_ADDED, _SAMPLED = (ev.EVENT_KINDS.index(kind) for kind in (ev.RequestAdded, ev.TokenSampled))
_STEP = ev.EVENT_KINDS.index(ev.StepStarted)
_REQUEST = KINDS[_ADDED].index("request_id")
_TOKENS, _TOKEN = KINDS[_ADDED].index("token_ids"), KINDS[_SAMPLED].index("token_id")


def recording_payload(source: ViewSource, *, has_words: bool = True, is_from_start: bool = False) -> bytes:
    """Return the recording from its oldest moment on as a `full` payload in JSON, for `mount` of the browser half.

    A recording of at most MAX_CAPTIONED events gets captions, unless has_words is False. Without captions the page
    itself writes one sentence per event. The rows of a saved recording are not decoded into events. It opens at its
    newest moment, or where its first step begins if is_from_start is True.
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
        "names": engine_ids_of(source, {*state.requests, *_requests_of(events)}),
        "tier": kept_contents(timeline, start),
        "seconds": sorted(timeline.step_seconds.items()),
        "captions": captions,
        "captioned": [[start, end]] if captions else [],
        "status": status(source) | {"running": False, "phase": None},
        "selection": None,
        "shown": _first_step(start, events) if is_from_start else None,
    }
    payload["header"]["answers"] = answers(timeline, source.seams(), source.engine_id)
    payload["header"]["title"] = payload["status"]["title"] = readable(source.title)
    return dumps(payload)


def answers(timeline: Timeline, seams: dict[str, Any], engine_ids: EngineIds | None = None) -> list[dict[str, Any]]:
    """Return answers to the likeliest questions about a recording, in the order of their moments.

    In a long recording only the newest events are searched: an answer whose cause lies earlier says so.
    """
    is_short = timeline.end - timeline.num_dropped <= SHORT
    if is_short:
        return answers_along(timeline, seams, engine_ids)
    return carried_answers(Newest(timeline), seams, engine_ids=engine_ids)


class Newest:
    """The newest events of a recording, presented as a whole one: this bounds the search for causes."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.end = timeline.end
        self.num_dropped = max(timeline.num_dropped, self.end - SHORT)
        self.gap_before = timeline.gap_before

    def events(self, start: int | None = None, stop: int | None = None) -> Sequence[ev.Event]:
        """Return the events between two moments, as far as they are among the newest."""
        low = self.num_dropped if start is None else max(start, self.num_dropped)
        return self._timeline.events(low, self.end if stop is None else stop)

    def state(self, moment: int | None = None) -> Fold:
        """Return the state at a moment."""
        return self._timeline.state(moment)

    def of_kind(self, kind: type[ev.ViolationFound]) -> list[ev.ViolationFound]:
        """Return the events of one kind among the newest."""
        return self._timeline.of_kind(kind, self.num_dropped, self.end)


def _kept(timeline: Timeline) -> tuple[int, Fold, Sequence[Row]]:
    """Return the oldest moment, the state there, and the rows of all events since."""
    if isinstance(timeline, RecordedTimeline):
        return timeline.num_dropped, timeline.state(timeline.num_dropped), rows_between(timeline)
    start, state, events = timeline.kept()
    return start, state, rows(events)


def _captions(timeline: Timeline, source: ViewSource, start: int, end: int) -> list[Any]:
    if end - start > MAX_CAPTIONED:
        return []
    return caption_rows(CaptionWriter(timeline, source.token_text).captions(start, end))


def _first_step(start: int, events: Sequence[Row]) -> int | None:
    """Return the moment before the first step; None without one."""
    return next((start + i for i, row in enumerate(events) if row[0] == _STEP), None)


def _requests_of(events: Sequence[Row]) -> Iterator[int]:
    """Yield the requests that are added in rows of events."""
    return (row[_REQUEST] for row in events if row[0] == _ADDED)


def _tokens_of(events: Sequence[Row]) -> Iterator[int]:
    """Yield the ids of all tokens in rows of events."""
    for row in events:
        if row[0] == _SAMPLED:
            yield row[_TOKEN]
        elif row[0] == _ADDED:
            yield from row[_TOKENS]
