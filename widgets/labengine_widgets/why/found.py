"""What the checks have found about the subject of an answer: there, events alone may be wrong."""

from __future__ import annotations

from dataclasses import replace

from labengine import events as ev
from labengine_widgets.names import readable
from labengine_widgets.why.answer import Link, Why
from labengine_widgets.why.past import Past

MAX_FOUND = 3
"""Violations that one answer tells."""

SAID = "said"
"""The rule that the core holds what the events say it holds (labengine.violation)."""


def with_found(past: Past, why: Why, *, block: int | None = None, request: int | None = None) -> Why:
    """The answer, and behind it what the checks have found about this block or request by the question's moment."""
    found = [one for one in past.found if block in one.block_ids or request in one.request_ids]
    return _told(past, why, found)


def with_found_at(past: Past, why: Why, number: int) -> Why:
    """The answer about an event, and behind it what the checks have found to begin with that event."""
    return _told(past, why, [one for one in past.found if one.first_event == number])


def _told(past: Past, why: Why, found: list[ev.ViolationFound]) -> Why:
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
        return f"But the core is not what the events say: {message}."
    return f"The rule “{one.rule}” is broken: {message}."


def _link(past: Past, number: int, found: list[ev.ViolationFound]) -> Link:
    """To the event that made it so, as far as it is still kept."""
    rules = ", ".join(dict.fromkeys(one.rule for one in found if one.first_event == number))
    return Link(min(max(number + 1, past.first), past.moment), number, f"Here it goes wrong, by the checks ({rules}).")
