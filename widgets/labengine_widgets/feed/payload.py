"""Documents for a browser half: a recording or a stretch of it as JSON, gzipped where it is long."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from labengine import events as ev
from labengine.record.files.codec import KINDS, Row, dumps, plain, rows
from labengine.record.files.keyframe import keyframe
from labengine.record.fold import Fold
from labengine.record.gap import Gap
from labengine.record.timeline import Timeline
from labengine_widgets.view_source import ViewSource
from labengine_widgets.words.captions import Caption, caption_rows
from labengine_widgets.words.tier import kept_contents

try:
    import orjson
except ImportError:  # a running lab sends 50 documents a second; the extra `lab` has it; there is no build for browsers
    json_bytes = dumps
else:

    def json_bytes(document: object) -> bytes:
        """Return the document as JSON.

        The plain encoder takes what the fast one refuses: half a surrogate pair in a model's text, an integer beyond
        64 bits.
        """
        try:
            return orjson.dumps(document, default=plain)
        except orjson.JSONEncodeError:
            return dumps(document)


MAX_EARLIER = 200
"""Maximum number of violations and failures to send from before the oldest event; the first ones show the origin."""

MAX_NAME = 200
"""Characters of a request's own id that are sent."""

Payload = dict[str, Any]
ByKind = dict[type[ev.Event], list[Any]]


def full_payload(
    source: ViewSource, timeline: Timeline, start: int, end: int, captions: Sequence[Caption] = ()
) -> Payload:
    """Return the recording from a step's start on, with the state there: all that a view needs to begin."""
    events, state = timeline.events(start, end), timeline.state(start)
    return stretch(source, timeline, start, events, state) | {
        "header": header(source, timeline),
        "earlier": earlier(timeline, start),
        "captions": caption_rows(captions),
        "status": status(source),
        "selection": None,
        "shown": None,
    }


def stretch(source: ViewSource, timeline: Timeline, start: int, events: Sequence[ev.Event], state: Fold) -> Payload:
    """Return events, the state before them, and the texts of all tokens in both."""
    kinds = by_kind(events)
    return {
        "start": start,
        "keyframe": keyframe(state),
        "events": rows(events),
        "texts": texts(source, {*tokens_of_state(state), *tokens_of(kinds)}),
        "names": engine_ids_of(source, {*state.requests, *requests_of(kinds)}),
        "tier": kept_contents(timeline, start),
        "seconds": seconds(timeline, kinds),
        "corrections": corrections(timeline, start, start + len(events)),
    }


def corrections(timeline: Timeline, start: int, end: int) -> list[tuple[int, Payload]]:
    """Return (moment, keyframe) of the states that the events before them do not lead to."""
    return [(moment, keyframe(state)) for moment, state in timeline.corrections(start, end)]


def earlier(timeline: Timeline, start: int) -> list[tuple[int, Row]]:
    """Return (number, row) of each violation and failure between the engine's start and a moment, oldest first."""
    found: list[tuple[int, ev.Event]] = []
    for number, event in enumerate(timeline.events(timeline.num_dropped, start), timeline.num_dropped):
        if isinstance(event, ev.EngineStarted):
            found.clear()
        elif isinstance(event, ev.ViolationFound | ev.StepFailed) and len(found) < MAX_EARLIER:
            found.append((number, event))
    return [(number, row) for (number, _), row in zip(found, rows([event for _, event in found]), strict=True)]


def header(source: ViewSource, timeline: Timeline) -> Payload:
    """Return the fields that stay the same while events are added."""
    return {
        "lab": source.lab,
        "title": source.title,
        "kinds": KINDS,
        "is_live": source.is_live,
        "is_recorded": source.timeline is not None,
        "first": timeline.num_dropped,
        "first_step": timeline.state(timeline.num_dropped).step + 1,
        "generation": timeline.generation,
        "gap_before": sentence(timeline.gap_before),
        "gap_after": sentence(timeline.gap_after),
        "code": source.seams(),
    }


def sentence(gap: Gap | None) -> str | None:
    """Return a gap as a sentence of the scrubber."""
    return None if gap is None else f"A gap: {gap}."


def status(source: ViewSource) -> Payload:
    """Return the state of the lab for the controls."""
    failures = list(source.hooks.failures) if source.hooks is not None else []
    return {
        "title": source.title,
        "running": source.is_running,
        "phase": source.phase,
        "stopped": source.stopped,
        "asked": source.asked,
        "request_options": source.request_options,
        "is_live": source.is_live,
        "note": source.note,
        "listener_failures": [f"{type(f.error).__name__}: {f.error}" for f in failures[-3:]],
    }


def texts(source: ViewSource, token_ids: Iterable[int]) -> list[tuple[int, str]]:
    """Return each token's text as the tokenizer gives it: untrusted."""
    return [(token_id, source.token_text(token_id)) for token_id in sorted(token_ids)]


def engine_ids_of(source: ViewSource, request_ids: Iterable[int]) -> list[tuple[int, str]]:
    """Return the engine's own id of each request, where it has one: untrusted."""
    named = ((request_id, source.engine_id(request_id)) for request_id in sorted(request_ids))
    return [(request_id, name[:MAX_NAME]) for request_id, name in named if name]


def requests_of(kinds: ByKind) -> set[int]:
    """Return the requests that are added by the events."""
    return {event.request_id for event in kinds[ev.RequestAdded]}


def by_kind(events: Iterable[ev.Event]) -> ByKind:
    """Return the events by kind, in their order, so that several questions need one pass only."""
    kinds: ByKind = defaultdict(list)
    for event in events:
        kinds[type(event)].append(event)
    return kinds


def seconds(timeline: Timeline, kinds: ByKind) -> list[tuple[int, float]]:
    """Return the seconds of each step that ends among the events, as far as they are known."""
    known = timeline.step_seconds
    return [(event.step, known[event.step]) for event in kinds[ev.StepEnded] if event.step in known]


def tokens_of(kinds: ByKind) -> set[int]:
    """Return the ids of all tokens in the events."""
    sampled = {event.token_id for event in kinds[ev.TokenSampled]}
    return sampled.union(*(event.token_ids for event in kinds[ev.RequestAdded]))


def tokens_of_state(state: Fold) -> Iterator[int]:
    """Yield the ids of all tokens in requests and in cached blocks."""
    for request in state.requests.values():
        yield from request.token_ids
    for block in state.block_tokens:
        yield from block


def ends_inside_step(events: Sequence[ev.Event], was_inside: bool) -> bool:
    """True if a step is open after these events; was_inside: before them."""
    for event in reversed(events):
        if isinstance(event, ev.StepStarted | ev.StepEnded | ev.StepRolledBack):
            return isinstance(event, ev.StepStarted)
    return was_inside


def step_start(timeline: Timeline, moment: int) -> int:
    """Return the moment before the step that contains a moment; the oldest moment kept if it lies before all steps."""
    first = timeline.num_dropped
    for low in range(moment, first - 1, -1000):
        begin = max(first, low - 1000)
        events = timeline.events(begin, low)
        for i in range(len(events) - 1, -1, -1):
            if type(events[i]) is ev.StepStarted:
                return begin + i
    return first


LONG = 8_000
"""Bytes from which a document is gzipped: half of a step's are hashes in hex, and unpacking takes a browser no time."""

_GZIP, _WINDOW, _TABLES = 16, 13, 6
"""zlib's words for a gzip header, a window of 8 KB, and small tables: a step fits in them, and clearing the default's
256 KB takes as long as zipping it.
"""


def packed(document: dict[str, Any]) -> bytes:
    """Return the document as `codec.dumps` writes it, gzipped if it is long."""
    data = json_bytes(document)
    return _gzipped(data) if len(data) > LONG else data


def _gzipped(data: bytes) -> bytes:
    stream = zlib.compressobj(1, zlib.DEFLATED, _GZIP + _WINDOW, _TABLES)
    return stream.compress(data) + stream.flush()
