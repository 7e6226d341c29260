"""Two engines' answers side by side, and the slot that caused the first wrong word."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from itertools import zip_longest

from labengine.events import TokenSampled
from labengine.lab import Lab
from labengine.record.violation import Violation


@dataclass(frozen=True, slots=True, repr=False)
class SideBySide:
    """Texts of two columns, one per request, in the order of the requests."""

    names: tuple[str, str]
    texts: tuple[tuple[str, ...], ...]

    def first_difference(self, request: int) -> tuple[int, str, str] | None:
        """Return a request's first difference as (word number from 0, one word, the other); None if there is none."""
        left, right = (re.findall(r"\s*\S+", texts[request]) for texts in self.texts)
        for number, (one, other) in enumerate(zip_longest(left, right, fillvalue="")):
            if one.strip() != other.strip():
                return number, one.strip(), other.strip()
        return None

    @property
    def num_differing(self) -> int:
        """Number of requests whose texts differ."""
        return sum(self.first_difference(request) is not None for request in range(len(self.texts[0])))

    def __repr__(self) -> str:
        width = max(map(len, self.names))
        lines = []
        for request, both in enumerate(zip(*self.texts, strict=True)):
            lines += [f"{name.ljust(width)}  {text!r}" for name, text in zip(self.names, both, strict=True)]
            lines += [f"{'':{width}}  {self._difference_text(request)}", ""]
        return "\n".join(lines).rstrip()

    def _difference_text(self, request: int) -> str:
        first_difference = self.first_difference(request)
        if first_difference is None:
            return "the same words"
        number, one, other = first_difference
        return f"first difference at word {number + 1}: {one or 'the end'!r} instead of {other or 'the end'!r}"

    def _repr_html_(self) -> str:
        head = "".join(f'<th style="text-align:left">{escape(name)}</th>' for name in self.names)
        body = "".join(
            "<tr>" + "".join(self._html_text(request, texts[request]) for texts in self.texts) + "</tr>"
            for request in range(len(self.texts[0]))
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _html_text(self, request: int, text: str) -> str:
        first_difference = self.first_difference(request)
        words = re.findall(r"\s*\S+", text)
        if first_difference is None or first_difference[0] >= len(words):
            marked = escape(text)
        else:
            number = first_difference[0]
            before, word, after = "".join(words[:number]), words[number], "".join(words[number + 1 :])
            space = word[: len(word) - len(word.lstrip())]
            marked = f"{escape(before)}{space}<mark>{escape(word.lstrip())}</mark>{escape(after)}"
        return f'<td style="text-align:left;vertical-align:top;white-space:pre-wrap">{marked}</td>'


@dataclass(frozen=True, slots=True, repr=False)
class Corruption:
    """Two answers of a real model side by side, and the cause of their first difference.

    texts: both answers. request_id, position: the first different token's. tokens: its text, broken and fixed. moment:
    the event that sampled it in the broken recording. cause: the earlier misread, with its block and the number of the
    event that caused it.
    """

    texts: SideBySide
    request_id: int
    position: int
    tokens: tuple[str, str]
    moment: int
    cause: Violation | None

    @property
    def sentence(self) -> str:
        """The first wrong word, and the slot that caused it."""
        wrong, right = self.tokens
        text = f"The first wrong word is {wrong.strip()!r} instead of {right.strip()!r}, at position {self.position}."
        if self.cause is None:
            return f"{text} The checks found no wrong slot among those it attended to."
        event = self.cause.first_event
        cause = "" if event is None else f" The slot has been wrong since event {event}."
        return f"{text} It attended to a wrong slot: {self.cause.message}.{cause}"

    def __repr__(self) -> str:
        return f"{self.texts}\n\n{self.sentence}"

    def _repr_html_(self) -> str:
        return f"{self.texts._repr_html_()}<p>{escape(self.sentence)}</p>"


def corruption_of(broken: Lab, fixed: Lab, names: tuple[str, str]) -> Corruption | None:
    """Return the first different token of two labs with the same requests; None if there is none."""
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
    """Return a request's first misread before the moment at which it sampled a token."""
    known = [v for v in lab.violations if v.rule == "read" and request_id in v.request_ids]
    before = [v for v in known if v.first_event is None or v.first_event < moment]
    return before[0] if before else None
