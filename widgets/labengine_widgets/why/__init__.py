"""Why? on anything: answers from the event stream alone, each a chain of events with links to their moments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from labengine_widgets.why.answer import Link, Why, WhyError
from labengine_widgets.why.blocks import why_block, why_free
from labengine_widgets.why.carried import answers_along, carried_answers
from labengine_widgets.why.causes import why_event
from labengine_widgets.why.found import with_found, with_found_at
from labengine_widgets.why.hashes import key_of, why_hash
from labengine_widgets.why.known import known_block, known_event, known_request
from labengine_widgets.why.lookup import why_hit
from labengine_widgets.why.lost import why_lost
from labengine_widgets.why.parting import why_not_parted, why_parted
from labengine_widgets.why.past import Past, Recording, Seams
from labengine_widgets.why.queue import why_in_queue, why_next
from labengine_widgets.why.references import why_ref_count
from labengine_widgets.why.requests import why_finished, why_preempted, why_request
from labengine_widgets.why.subjects import Subject, parsed
from labengine_widgets.why.waiting import why_waiting

__all__ = [
    "Link",
    "Why",
    "WhyError",
    "answer",
    "answers_along",
    "carried_answers",
    "why",
    "why_not_parted",
    "why_parted",
]

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
}


def why(
    timeline: Recording, subject: Mapping[str, Any], moment: int | None = None, *, seams: Seams | None = None
) -> Why:
    """Why something is as it is at a moment (by default the newest).

    subject: {"block": 3}, {"request": 2}, {"hash": "1f3a"}, {"event": 17} or {"next_victim": True}, with "about" for
    one question of several; or a selection {"kind", "id"}. seams: what `seams_of` of the
    lab knows; without them the links name no methods. WhyError for what the recording does not know.
    """
    asked = parsed(subject)
    return _answer(Past(timeline, moment, seams), asked)


def answer(source: Any, timeline: Recording, subject: Mapping[str, Any], moment: int | None = None) -> dict[str, Any]:
    """The same for a view: plain JSON types, and what went wrong as an answer. Never raises.

    source: asked for its seams(), if it has any.
    """
    try:
        return why(timeline, subject, moment, seams=getattr(source, "seams", dict)()).to_dict()
    except WhyError as error:
        return Why("Why?", str(error)).to_dict() | {"is_error": True}
    except Exception as error:
        told = f"This question could not be answered: {type(error).__name__}: {error}"
        return Why("Why?", told).to_dict() | {"is_error": True}


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
        case "event":
            number = known_event(past, asked.id)
            return with_found_at(past, why_event(past, number), number)
        case _:
            return why_next(past)
