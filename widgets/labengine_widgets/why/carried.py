"""Answers to take along: a page without Python can ask nobody, so it carries the likeliest ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from labengine import events as ev
from labengine_widgets.why.answer import Why
from labengine_widgets.why.blocks import why_free
from labengine_widgets.why.causes import why_event
from labengine_widgets.why.found import with_found, with_found_at
from labengine_widgets.why.hashes import why_hash
from labengine_widgets.why.lookup import why_hit
from labengine_widgets.why.lost import is_lost, why_lost
from labengine_widgets.why.past import Past, Recording, Seams
from labengine_widgets.why.queue import why_in_queue
from labengine_widgets.why.references import why_ref_count
from labengine_widgets.why.requests import why_finished, why_preempted, why_request

MAX_ANSWERS = 200
MAX_BLOCKS = 64
MAX_STEPS = 12
MAX_EVENTS = 400

Carried = dict[str, Any]
"""{subject: {kind, id, about}, moment, answer}: what `header.answers` of a page holds, for views/why.js."""


def carried_answers(timeline: Recording, seams: Seams | None = None, moment: int | None = None) -> list[Carried]:
    """Answers about the requests and blocks at a moment (by default the newest), at most MAX_ANSWERS of them."""
    past = Past(timeline, moment, seams)
    return [_carried(past, *told) for told in islice(_answers(past), MAX_ANSWERS)]


def answers_along(timeline: Recording, seams: Seams | None = None) -> list[Carried]:
    """The same at the ends of the newest steps too, and about each of the newest events: for a lesson to go back in."""
    first = max(timeline.num_dropped, timeline.end - MAX_EVENTS)
    events = timeline.events(first, timeline.end)
    ended = [first + i + 1 for i, event in enumerate(events) if type(event) is ev.StepEnded]
    moments = sorted({*ended[-MAX_STEPS:], timeline.end})
    found = timeline.of_kind(ev.ViolationFound)
    pasts = {number: Past(timeline, number + 1, seams, found) for number in range(first, timeline.end)}
    about_events = [_carried(past, "event", number, "", why_event(past, number)) for number, past in pasts.items()]
    return [*about_events, *(carried for moment in moments for carried in carried_answers(timeline, seams, moment))]


def _carried(past: Past, kind: str, subject: int | str, about: str, why: Why) -> Carried:
    named = {"kind": kind, "id": subject, "about": about}
    if isinstance(subject, int):
        why = _with_found(past, kind, subject, why)
    return {"subject": named, "moment": past.moment, "answer": why.to_dict()}


def _with_found(past: Past, kind: str, subject: int, why: Why) -> Why:
    if kind == "event":
        return with_found_at(past, why, subject)
    return with_found(past, why, **{kind: subject})


def _answers(past: Past) -> Iterator[tuple[str, int | str, str, Why]]:
    head = next(iter(past.state.free_queue), None)
    if head is not None:
        yield "block", head, "queue", why_in_queue(past, head)
    for request_id, request in past.state.requests.items():
        yield "request", request_id, "hit", why_hit(past, request_id)
        if request.status == "finished":
            yield "request", request_id, "finished", why_finished(past, request_id)
        elif request.status == "preempted":
            yield "request", request_id, "preempted", why_preempted(past, request_id)
        elif request.status == "waiting":
            yield "request", request_id, "waiting", why_request(past, request_id)
    for block_id in islice(_touched(past), MAX_BLOCKS):
        if past.state.ref_counts[block_id]:
            yield "block", block_id, "ref_count", why_ref_count(past, block_id)
        else:
            yield "block", block_id, "free", why_free(past, block_id)
        if is_lost(past, block_id):
            yield "block", block_id, "lost", why_lost(past, block_id)
    for group, hash_ in past.state.prefix_map:
        yield "hash", f"{group}:{hash_.hex()}", "", why_hash(past, (group, hash_))


def _touched(past: Past) -> Iterator[int]:
    """Blocks that hold something."""
    state = past.state
    for block_id, count in enumerate(state.ref_counts):
        if count or state.block_keys[block_id]:
            yield block_id
