"""Answer questions about a recording, on request or beforehand for a page without Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from labengine import events as ev
from labengine.record.wording import readable, request_name
from labengine_widgets.why.answer import Link, Why, WhyError
from labengine_widgets.why.blocks import why_block, why_free, why_in_queue, why_next
from labengine_widgets.why.drafts import why_drafts
from labengine_widgets.why.events import why_event
from labengine_widgets.why.hits import why_hit
from labengine_widgets.why.map_entries import key_of, why_hash, why_lost
from labengine_widgets.why.nodes import why_node
from labengine_widgets.why.past import Past, Recording, Seams
from labengine_widgets.why.references import why_ref_count
from labengine_widgets.why.requests import why_beam, why_finished, why_preempted, why_request
from labengine_widgets.why.subjects import Subject, known_block, known_event, known_node, known_request, parsed
from labengine_widgets.why.waiting import is_left_out, why_no_token, why_waiting

MAX_FOUND = 3
"""Maximum number of violations in one answer."""

SAID = "said"
"""The rule that the core's state equals the fold of its events (labengine.record.violation)."""


def with_found(past: Past, why: Why, *, block: int | None = None, request: int | None = None) -> Why:
    """Append to an answer the violations about its block or request found by the question's moment."""
    found = [one for one in past.found if block in one.block_ids or request in one.request_ids]
    return _with_violations(past, why, found)


def with_found_at(past: Past, why: Why, number: int) -> Why:
    """Append to an answer about an event the violations that begin with it."""
    return _with_violations(past, why, [one for one in past.found if one.first_event == number])


def _with_violations(past: Past, why: Why, found: list[ev.ViolationFound]) -> Why:
    if not found:
        return why
    shown = sorted(found, key=lambda one: one.rule != SAID)[:MAX_FOUND]
    texts = dict.fromkeys(_sentence(one) for one in shown)
    more = f" ({len(found) - len(shown)} more.)" if len(found) > len(shown) else ""
    begins = dict.fromkeys(one.first_event for one in shown if one.first_event is not None)
    links = tuple(_link(past, number, found) for number in begins)
    return replace(why, answer=f"{why.answer} {' '.join(texts)}{more}", links=(*why.links, *links))


def _sentence(one: ev.ViolationFound) -> str:
    message = readable(one.message, 300)
    if one.rule == SAID:
        return f"But the core's state differs from the events: {message}."
    return f"The rule “{one.rule}” is broken: {message}."


def _link(past: Past, number: int, found: list[ev.ViolationFound]) -> Link:
    """Return the link to the event that caused a violation, if it is still recorded."""
    rules = ", ".join(dict.fromkeys(one.rule for one in found if one.first_event == number))
    return Link(
        min(max(number + 1, past.first), past.moment),
        number,
        f"This is where it goes wrong, according to the checks ({rules}).",
    )


_ABOUT_BLOCK: dict[str | None, Callable[[Past, int], Why]] = {
    None: why_block,
    "ref_count": why_ref_count,
    "lost": why_lost,
    "free": why_free,
    "queue": why_in_queue,
}
_ABOUT_REQUEST: dict[str | None, Callable[[Past, int], Why]] = {
    None: why_request,
    "hit": why_hit,
    "preempted": why_preempted,
    "waiting": why_waiting,
    "finished": why_finished,
    "token": why_no_token,
    "drafts": why_drafts,
    "beam": why_beam,
}


def why(
    timeline: Recording,
    subject: Mapping[str, Any],
    moment: int | None = None,
    *,
    seams: Seams | None = None,
    engine_ids: EngineIds | None = None,
) -> Why:
    """Explain the state of a subject at a moment (by default the newest).

    subject: {"block": 3}, {"request": 2}, {"hash": "1f3a"}, {"node": 4}, {"event": 17} or {"next_victim": True}, with
    "about" for one question of several; or a selection {"kind", "id"}. seams: what `seams_of` of the
    lab knows; without them the links name no methods. engine_ids: from a request's number to the engine's own id.
    Raises WhyError for a subject that the recording does not have.
    """
    asked, past = parsed(subject), Past(timeline, moment, seams)
    found = _answer(past, asked)
    return found if engine_ids is None else with_engine_ids(past, asked, found, engine_ids)


def answer(source: Any, timeline: Recording, subject: Mapping[str, Any], moment: int | None = None) -> dict[str, Any]:
    """Return the answer for a view, in plain JSON types; an error becomes an answer's text. Never raises.

    source: its seams() name the methods, and its engine_id() the requests, if it has these methods.
    """
    try:
        seams: Seams = getattr(source, "seams", dict)()
        return why(timeline, subject, moment, seams=seams, engine_ids=getattr(source, "engine_id", None)).to_dict()
    except WhyError as error:
        return Why("Why?", str(error)).to_dict() | {"is_error": True}
    except Exception as error:
        text = f"This question could not be answered: {type(error).__name__}: {error}"
        return Why("Why?", text).to_dict() | {"is_error": True}


def _answer(past: Past, asked: Subject) -> Why:
    match asked.kind:
        case "block":
            block = known_block(past, asked.id)
            return with_found(past, _ABOUT_BLOCK[asked.about](past, block), block=block)
        case "request":
            request = known_request(past, asked.id)
            return with_found(past, _ABOUT_REQUEST[asked.about](past, request), request=request)
        case "hash":
            return why_hash(past, key_of(past, asked.id))
        case "node":
            return why_node(past, known_node(past, asked.id))
        case "event":
            number = known_event(past, asked.id)
            return with_found_at(past, why_event(past, number), number)
        case _:
            return why_next(past)


MAX_ANSWERS = 200
MAX_BLOCKS = 64
MAX_NODES = 32
MAX_STEPS = 12
MAX_EVENTS = 400

Carried = dict[str, Any]
"""{subject: {kind, id, about}, moment, answer}: an item of a page's `header.answers`, which views/why reads."""


def carried_answers(
    timeline: Recording, seams: Seams | None = None, moment: int | None = None, engine_ids: EngineIds | None = None
) -> list[Carried]:
    """Return answers about the requests and blocks at a moment (by default the newest), at most MAX_ANSWERS."""
    past = Past(timeline, moment, seams)
    return [_carried(past, *row, engine_ids) for row in islice(_answers(past), MAX_ANSWERS)]


def answers_along(
    timeline: Recording, seams: Seams | None = None, engine_ids: EngineIds | None = None
) -> list[Carried]:
    """Return answers at the ends of the newest steps and about each of the newest events, for pages that scrub."""
    first = max(timeline.num_dropped, timeline.end - MAX_EVENTS)
    events = timeline.events(first, timeline.end)
    ended = [first + i + 1 for i, event in enumerate(events) if type(event) is ev.StepEnded]
    moments = sorted({*ended[-MAX_STEPS:], timeline.end})
    found = timeline.of_kind(ev.ViolationFound)
    pasts = {number: Past(timeline, number + 1, seams, found) for number in range(first, timeline.end)}
    about_events = [
        _carried(past, "event", number, "", why_event(past, number), engine_ids) for number, past in pasts.items()
    ]
    at_moments = (carried_answers(timeline, seams, moment, engine_ids) for moment in moments)
    return [*about_events, *(carried for answers in at_moments for carried in answers)]


def _carried(past: Past, kind: str, subject: int | str, about: str, why: Why, engine_ids: EngineIds | None) -> Carried:
    named = {"kind": kind, "id": subject, "about": about}
    if isinstance(subject, int):
        why = _with_found(past, kind, subject, why)
    if engine_ids is not None:
        why = with_engine_ids(past, Subject(kind, subject, about), why, engine_ids)
    return {"subject": named, "moment": past.moment, "answer": why.to_dict()}


def _with_found(past: Past, kind: str, subject: int, why: Why) -> Why:
    if kind == "event":
        return with_found_at(past, why, subject)
    if kind == "node":
        return why
    return with_found(past, why, **{kind: subject})


def _answers(past: Past) -> Iterator[tuple[str, int | str, str, Why]]:
    head = next(iter(past.state.free_queue), None)
    if head is not None:
        yield "block", head, "queue", why_in_queue(past, head)
    judged = {event.request_id for _, event in past.backwards() if isinstance(event, ev.DraftsJudged)}
    for request_id, request in past.state.requests.items():
        yield "request", request_id, "hit", why_hit(past, request_id)
        if request.status == "finished":
            yield "request", request_id, "finished", why_finished(past, request_id)
        elif request.status == "preempted":
            yield "request", request_id, "preempted", why_preempted(past, request_id)
        elif request.status == "waiting":
            yield "request", request_id, "waiting", why_request(past, request_id)
        elif is_left_out(past, request_id):
            yield "request", request_id, "token", why_no_token(past, request_id)
        if request_id in judged:
            yield "request", request_id, "drafts", why_drafts(past, request_id)
        if request.first_beam is not None:
            yield "request", request_id, "beam", why_beam(past, request_id)
    for block_id in islice(_used_or_cached(past), MAX_BLOCKS):
        if past.state.ref_counts[block_id]:
            yield "block", block_id, "ref_count", why_ref_count(past, block_id)
        else:
            yield "block", block_id, "free", why_free(past, block_id)
        if past.state.is_lost(block_id):
            yield "block", block_id, "lost", why_lost(past, block_id)
    for node_id in islice(past.state.tree.nodes, MAX_NODES):
        yield "node", node_id, "", why_node(past, node_id)
    for group, hash_ in past.state.prefix_map:
        yield "hash", f"{group}:{hash_.hex()}", "", why_hash(past, (group, hash_))


def _used_or_cached(past: Past) -> Iterator[int]:
    """Yield the blocks with references or content."""
    state = past.state
    for block_id, count in enumerate(state.ref_counts):
        if count or state.block_keys[block_id]:
            yield block_id


# -- the engine's own ids of requests ----------------------------------------------------------------------------------


EngineIds = Callable[[int], str]
"""From a request's number to the engine's own id of it; empty for none."""

MAX_IDS = 8
"""Ids that one answer lists."""

MAX_LENGTH = 64
"""Characters of an id that an answer shows: a client may have chosen them."""

_LETTERS = re.compile(r"\b[A-Z]{1,4}\b")
_WORDS = {"A", "KV"}
"""Capitals in sentences that are not always requests: "A block is ...", "keys and values (KV)"."""


def with_engine_ids(past: Past, asked: Subject, why: Why, engine_ids: EngineIds) -> Why:
    """Add the engine's ids of requests to an answer; an engine without its own ids leaves it unchanged."""
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
