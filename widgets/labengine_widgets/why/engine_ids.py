"""The engine's own ids of the requests that an answer names by their letters: A = cmpl-..."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from labengine.record.wording import readable, request_name
from labengine_widgets.why.answer import Why
from labengine_widgets.why.past import Past
from labengine_widgets.why.subjects import Subject

EngineIds = Callable[[int], str]
"""From a request's number to the engine's own id of it; empty for none."""

MAX_IDS = 8
"""Ids that one answer lists."""

MAX_LENGTH = 64
"""Characters of an id that an answer shows: anybody who sends a request may have chosen them."""

_LETTERS = re.compile(r"\b[A-Z]{1,4}\b")
_WORDS = {"A", "KV"}
"""Capitals of the sentences that may be no request: "A block is ...", "keys and values (KV)"."""


def with_engine_ids(past: Past, asked: Subject, why: Why, engine_ids: EngineIds) -> Why:
    """Add to an answer what the engine calls its requests; unchanged for an engine that has no ids of its own."""
    found = ((request_name(i), readable(engine_ids(i), MAX_LENGTH)) for i in _requests_in(past, asked, why))
    return replace(why, names=tuple((letter, name) for letter, name in found if name)[:MAX_IDS])


def _requests_in(past: Past, asked: Subject, why: Why) -> list[int]:
    """Return the requests of the question, of the events, and those whose letters are in the text."""
    known = past.state.requests
    texts = (why.question, why.answer, *(link.sentence for link in why.links))
    letters = {letter for text in texts for letter in _LETTERS.findall(text)} - _WORDS
    named = {i for i in known if request_name(i) in letters} if letters else set()
    asked_for = {asked.id} if asked.kind == "request" and type(asked.id) is int else set()
    return sorted(named | asked_for | set(_of_events(past, why)))


def _of_events(past: Past, why: Why) -> Iterator[int]:
    for link in why.links:
        if link.event_number is not None and past.first <= link.event_number < past.timeline.end:
            request_id = getattr(past.event(link.event_number), "request_id", None)
            if isinstance(request_id, int):
                yield request_id
