"""What a browser half asks of the recording: what was before, the words of a stretch, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from labengine.timeline import Timeline
from labengine_widgets.payload import Payload, step_start, stretch
from labengine_widgets.view_source import ViewSource

OLDER_EVENTS = 20_000
"""Events that are sent at once, about, to who goes back beyond what there is."""


class AskedFeed(Protocol):
    """What an answer takes from a feed."""

    view_source: ViewSource

    @property
    def recording(self) -> Timeline: ...
    def signed_words(self, start: int, end: int) -> Any: ...


def older(feed: AskedFeed, message: dict[str, Any]) -> Payload:
    """The recording before a moment, from a step's start on."""
    timeline = feed.recording
    before = moment_of(message.get("before"), timeline)
    start = step_start(timeline, max(timeline.num_dropped, before - OLDER_EVENTS))
    events, state = timeline.events(start, before), timeline.state(start)
    return stretch(feed.view_source, timeline, start, events, state) | {"end": before}


def words(feed: AskedFeed, message: dict[str, Any]) -> Payload:
    """The beats between two moments."""
    start, end = moment_of(message.get("start"), feed.recording), moment_of(message.get("end"), feed.recording)
    return {"start": start, "end": end, "beats": feed.signed_words(start, end)}


def why(feed: AskedFeed, message: dict[str, Any]) -> Payload:
    """The chain of events that answers why something is as it is."""
    from labengine_widgets.why import answer

    told = answer(feed.view_source, feed.recording, message.get("subject") or {}, message.get("moment"))
    return {"id": message.get("id"), "answer": told}


ANSWERS: dict[str, Callable[[AskedFeed, dict[str, Any]], Payload]] = {"older": older, "beats": words, "why": why}


def moment_of(told: object, timeline: Timeline) -> int:
    """A moment that a browser asks for, within what is kept."""
    moment = told if isinstance(told, int) and not isinstance(told, bool) else timeline.end
    return max(timeline.num_dropped, min(moment, timeline.end))


def is_moment(told: object, timeline: Timeline) -> bool:
    """True for a moment of the recording that is kept."""
    return isinstance(told, int) and not isinstance(told, bool) and timeline.num_dropped <= told <= timeline.end
