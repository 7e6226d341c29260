"""The messages of a feed to all its views: new events with captions, the whole recording, the lab's status."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from labengine import events as ev
from labengine.record.files.codec import rows
from labengine.record.timeline import Timeline
from labengine_widgets.feed.payload import (
    ByKind,
    Payload,
    by_kind,
    corrections,
    ends_inside_step,
    engine_ids_of,
    full_payload,
    packed,
    requests_of,
    seconds,
    status,
    step_start,
    texts,
    tokens_of,
)
from labengine_widgets.feed.viewers import Viewers
from labengine_widgets.selection import Selection
from labengine_widgets.view_source import ViewSource
from labengine_widgets.words.captions import SharedCaptions, caption_rows

MAX_BEHIND = 10_000
"""With more unsent events the views start again from the newest ones, if that takes fewer bytes than all of them."""

BYTES_AN_EVENT = 8
"""Bytes of an event in a message of many, gzipped. A full message may be large: finished requests keep their tokens."""

REMINDERS = (1, 4, 16)
"""Ticks of a quiet lab after which the views get its newest moment again: the last message may have been lost."""

FIRST_EVENTS = 3_000
"""Approximate number of events that a view has from the start; older ones are sent when the reader goes there."""


class ShownState:
    """The moment and the selection that all views of one lab show.

    moment: the moment that the views show; None: the newest one, and they follow.
    num_shows, num_selects: how often Python has set the moment, and the selection. Views answer with the counts that
    they have heard of: an action from before the newest one was heard is outdated, however late it arrives.
    """

    def __init__(self) -> None:
        self.moment: int | None = None
        self.selection: Selection | None = None
        self.num_shows = self.num_selects = 0
        self._shown_at = (-1, 0)

    def show(self, moment: int | None, timeline: Timeline | None) -> None:
        """Note the moment that Python has the views show, and how far the recording was then."""
        self.moment = moment
        self.num_shows += 1
        self._shown_at = (-1, 0) if timeline is None else (timeline.generation, timeline.end)

    def select(self, selection: Selection | None) -> None:
        """Note the selection that Python makes in every view."""
        self.selection = selection
        self.num_selects += 1

    def move_on(self, now: tuple[int, int]) -> None:
        """Show the newest moment again if the recording has gained events. now: its generation and end."""
        if self._shown_at < now:
            self.moment = None

    def payload(self) -> Payload:
        """Return the fields of a full payload."""
        return {
            "selection": self.selection and self.selection.to_dict(),
            "shown": self.moment,
            "num_shows": self.num_shows,
            "num_selects": self.num_selects,
        }


class NewestStep(NamedTuple):
    """The newest step of the engine, as far as the feed has heard of it."""

    is_open: bool = False
    start_by_hand: int | None = None
    """The moment before it if the user took it by hand: its events get captions. None for a step of a run."""


class Publisher:
    """Encodes new events once, and sends them to every view. Used by one thread at a time.

    recording: returns the timeline, or raises LookupError before there is one.
    """

    def __init__(
        self,
        source: ViewSource,
        viewers: Viewers,
        shown: ShownState,
        recording: Callable[[], Timeline],
    ) -> None:
        self.shared_captions = SharedCaptions(recording, source.token_text)
        self.num_messages = self.num_bytes = 0
        self.end = 0
        """The moment up to which events were sent."""
        self.is_followed = False
        """True while the newest events sent belong to a run, and have no captions: views show the newest moment."""
        self.is_saved = False
        """True once every view has saved all that was sent."""
        self.newest_step = NewestStep()  # replaced as a whole, so that a reader never sees half a change
        self._source, self._viewers, self._shown = source, viewers, shown
        self._recording = recording
        self._generation = -1
        self._ends_inside_step = False
        self._status: Payload = {}
        self._known_texts: set[int] = set()
        self._num_quiet = 0
        self._size_of_full = 0
        """Bytes of the newest full message."""

    @property
    def is_running(self) -> bool:
        """True if the lab stepped by itself at the newest status that was sent."""
        return bool(self._status["running"])

    def begin(self, timeline: Timeline | None) -> None:
        """Follow a recording from its newest moment on; the first views ask for the events before."""
        self.shared_captions.forget()
        self.is_saved, self.newest_step = False, NewestStep(self.newest_step.is_open)
        self._num_quiet = REMINDERS[-1]
        self.end = timeline.end if timeline is not None else 0
        self._generation = timeline.generation if timeline is not None else -1

    def start_over(self) -> None:
        """Send everything again at the next tick, after an error."""
        self._generation = -1
        self.shared_captions.forget()

    def publish(self) -> bool:
        """Send new events. Returns False if the recording was replaced meanwhile: publish again."""
        timeline = self._recording()
        generation, end = timeline.generation, timeline.end
        if generation != self._generation or self.end < timeline.num_dropped or self._is_far_behind(end):
            self._send_full(generation)
        elif end == self.end:
            self._remind()
        else:
            events = timeline.events(self.end, end)
            if timeline.generation != generation:
                return False
            self._send_events(events, (generation, end))
        return True

    def publish_status(self) -> None:
        """Send the lab's status if it has changed."""
        now = status(self._source)
        if now != self._status:
            self._status = now
            self._viewers.send({"type": "status", "status": now})

    def send_last_step(self) -> None:
        """Send the captions of the last step: the run that the views followed is over."""
        self.is_followed = False
        start, end = step_start(self._recording(), self.end), self.end
        captions = {"captions": self._rows(start, end), "opening": self.opening_caption(end)}
        self._viewers.send({"type": "captions"}, {"start": start, "end": end, **captions})

    def answer_full(self) -> bytes:
        """Return the full payload for one view that asks for it, with everything that was sent; encoded."""
        self._num_quiet = 0
        payload = self.full(self.end)
        self._know_texts(payload)
        data = packed(payload)
        self._size_of_full = len(data)
        return data

    def full(self, end: int) -> Payload:
        """Return all that a view needs to begin: the newest steps, and the captions of the last one."""
        timeline, source = self._recording(), self._source
        last = step_start(timeline, end)
        start = (
            last if end - last > FIRST_EVENTS else step_start(timeline, max(timeline.num_dropped, end - FIRST_EVENTS))
        )
        captions = [] if source.is_running else self.shared_captions.captions(last, end)
        payload = full_payload(source, timeline, start, end, captions) | self._shown.payload()
        return payload | {"captioned": [[last, end]] if captions else [], "opening": self.opening_caption(end)}

    def opening_caption(self, moment: int) -> tuple[int, list[Any]] | None:
        """Return the caption for a view that opens at a moment; None while the lab runs."""
        return None if self._source.is_running else (moment, self.shared_captions.opening_sentence(moment).row())

    def _rows(self, start: int, end: int) -> list[list[Any]]:
        return caption_rows(self.shared_captions.captions(start, end))

    # -- one message ---------------------------------------------------------------------------------------------------

    def _is_far_behind(self, end: int) -> bool:
        return end - self.end > max(MAX_BEHIND, self._size_of_full / BYTES_AN_EVENT)

    def _send_events(self, events: Sequence[ev.Event], now: tuple[int, int]) -> None:
        timeline, start = self._recording(), self.end
        self.end = start + len(events)
        kinds = by_kind(events)
        payload: Payload = {"start": start, "events": rows(events), "texts": self._new_texts(kinds)}
        payload["seconds"], payload["corrections"] = seconds(timeline, kinds), corrections(timeline, start, self.end)
        payload["names"] = engine_ids_of(self._source, requests_of(kinds))
        start_by_hand = self.newest_step.start_by_hand
        captioned = self._captions_start(start, start_by_hand, kinds)
        self._ends_inside_step = ends_inside_step(events, self._ends_inside_step)
        captions = self._rows(captioned, self.end) if captioned is not None else []
        payload |= {"captioned": captioned, "captions": captions}
        self.is_followed = captioned is None or (self.is_followed and start_by_hand is None)
        self._shown.move_on(now)
        self._send_state({"type": "more", "generation": now[0], "status": status(self._source)}, payload)

    def _captions_start(self, start: int, start_by_hand: int | None, kinds: ByKind) -> int | None:
        """Return the moment from which new events get captions; None for those of a run."""
        if self._source.is_running:
            return None
        if start_by_hand is not None:
            return max(start, start_by_hand)
        return None if kinds[ev.StepStarted] or self._ends_inside_step else start

    def _send_full(self, generation: int) -> None:
        self._generation = generation
        self._ends_inside_step = self.newest_step.is_open
        self._shown.move_on((generation, self._recording().end))
        self.end = self._recording().end
        payload = self.full(self.end)
        self._know_texts(payload)
        size = self._send_state({"type": "full", "view": None}, payload)
        self._size_of_full = size // max(1, len(self._viewers))

    def _send_state(self, content: dict[str, Any], payload: Payload) -> int:
        """Send a message to every view. Returns the bytes of its payload, over all views."""
        size = self._viewers.send(content, payload)
        self.is_saved = False
        self.num_messages += 1
        self._num_quiet = 0
        self.num_bytes += size
        return size

    def _remind(self) -> None:
        """Without new events, send the newest moment now and then: a view that missed a message then asks for all."""
        if self._source.is_running:
            return
        self._num_quiet += 1
        if self._num_quiet in REMINDERS:
            self._viewers.send({"type": "end", "generation": self._generation, "end": self.end})

    def _know_texts(self, payload: Payload) -> None:
        """Keep only this payload's texts as known: a view that starts over has forgotten all others."""
        self._known_texts = {token_id for token_id, _ in payload["texts"]}

    def _new_texts(self, kinds: ByKind) -> list[tuple[int, str]]:
        new = tokens_of(kinds) - self._known_texts
        self._known_texts |= new
        return texts(self._source, new)
