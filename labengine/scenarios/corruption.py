"""Corruption you can read: what a broken engine says instead, and the slot that made it say so."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from labengine.events import TokenSampled
from labengine.lab import Lab
from labengine.scenarios.side_by_side import SideBySide
from labengine.violation import Violation


@dataclass(frozen=True, slots=True, repr=False)
class Corruption:
    """Two answers of a real model beside one another, and why the broken one goes another way.

    texts: both answers. request_id, position: of the first token that differs; tokens: it, broken and fixed, as text.
    moment: the event that sampled it in the broken recording. cause: the misread before it, with the block, and the
    number of the event that made it so.
    """

    texts: SideBySide
    request_id: int
    position: int
    tokens: tuple[str, str]
    moment: int
    cause: Violation | None

    @property
    def sentence(self) -> str:
        """From the word back to the slot."""
        wrong, right = self.tokens
        told = f"The first wrong word is {wrong.strip()!r} instead of {right.strip()!r}, at position {self.position}."
        if self.cause is None:
            return f"{told} No slot that it attended to was found wrong before."
        since = "" if self.cause.first_event is None else f" It has been so since event {self.cause.first_event}."
        return f"{told} It attended to a slot that was wrong: {self.cause.message}.{since}"

    def __repr__(self) -> str:
        return f"{self.texts}\n\n{self.sentence}"

    def _repr_html_(self) -> str:
        return f"{self.texts._repr_html_()}<p>{escape(self.sentence)}</p>"


def corruption_of(broken: Lab, fixed: Lab, names: tuple[str, str]) -> Corruption | None:
    """Both labs have answered the same requests: the first token in which they differ; None when they do not."""
    outputs = [[lab.output(request_id) for request_id in lab.snapshot().requests] for lab in (broken, fixed)]
    found = [
        (moment, event)
        for moment, event in _sampled(broken)
        if event.token_id != _token_at(fixed, event.request_id, event.position)
    ]
    if not found:
        return None
    moment, event = found[0]
    texts = SideBySide(names, (tuple(o.text for o in outputs[0]), tuple(o.text for o in outputs[1])))
    right = _token_at(fixed, event.request_id, event.position)
    tokens = (broken.token_text(event.token_id), "" if right is None else fixed.token_text(right))
    cause = _cause(broken, event.request_id, moment)
    return Corruption(texts, event.request_id, event.position, tokens, moment, cause)


def _sampled(lab: Lab) -> list[tuple[int, TokenSampled]]:
    assert lab.timeline is not None
    events = enumerate(lab.timeline.events(), lab.timeline.num_dropped)
    return [(moment, event) for moment, event in events if isinstance(event, TokenSampled)]


def _token_at(lab: Lab, request_id: int, position: int) -> int | None:
    token_ids = lab.snapshot().requests[request_id].token_ids
    return token_ids[position] if position < len(token_ids) else None


def _cause(lab: Lab, request_id: int, moment: int) -> Violation | None:
    """Return the first wrong slot that a request had read when it sampled a token."""
    known = [v for v in lab.violations if v.rule == "read" and request_id in v.request_ids]
    before = [v for v in known if v.first_event is None or v.first_event < moment]
    return before[0] if before else None
