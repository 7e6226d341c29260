"""An answer: the question, one or two sentences, and the chain of events that caused it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from html import escape
from textwrap import wrap
from typing import Any

from labengine.record.wording import visible

NO_ENGINE_YET = "moment {} has no engine or blocks yet: ask at a later one (lab.moment = None is the newest)"
"""Message for a question about blocks at a moment before the engine's start."""


class WhyError(ValueError):
    """A question about a subject that the recording lacks; the message names those that it has."""


@dataclass(frozen=True, slots=True)
class Link:
    """One event of a chain, with its sentence."""

    moment: int
    """The moment just after the event."""
    event_number: int | None
    """The event's number in the recording; None at the recording's beginning."""
    sentence: str
    seam: str | None = None
    """The method that decided it: "LateMerge.merge_target"."""
    reason: str = ""
    """The method's reason in one line; empty where no seam is known."""
    change: int = 0
    """In a chain about a ref count: the change of the count. The changes add up to the count."""
    side: int = 0
    """0, or 1 for the right one of two recordings."""
    place: str = ""
    """File, line and version of the method in the engine that was recorded; empty for labengine's own."""

    def with_change(self, change: int) -> Link:
        """Return the link with another change of the ref count."""
        return replace(self, change=change)


@dataclass(frozen=True, slots=True)
class Why:
    """The answer to a Why? question. Printing it shows the chain; `to_dict` is its form for a view."""

    question: str
    answer: str
    links: tuple[Link, ...] = ()
    names: tuple[tuple[str, str], ...] = ()
    """(letter, the engine's own id) of the named requests; empty where they have only letters."""

    def __repr__(self) -> str:
        lines = [self.question, *wrap(self.answer, 100, initial_indent="  ", subsequent_indent="  ")]
        if self.names:
            lines += wrap(self.names_line(), 100, initial_indent="  ", subsequent_indent="  ")
        named: set[tuple[str, str]] = set()
        for link in self.links:
            number = "     start" if link.event_number is None else f"event {link.event_number:>4}"
            change = f"{link.change:+d}  " if link.change else ""
            lines.append(f"  {number}  {change}{link.sentence}")
            if link.seam is not None and (link.seam, link.place) not in named:
                named.add((link.seam, link.place))
                method = f"{link.seam} ({link.place})" if link.place else link.seam
                lines += wrap(f"{method}: {link.reason}", 100, initial_indent=" " * 14, subsequent_indent=" " * 14)
        return visible("\n".join(lines))

    def _repr_html_(self) -> str:
        """Return the answer as HTML for a notebook; escaped, because text may come from a model or a prompt."""
        seams = [(link.seam, link.place) for link in self.links]
        rows = "".join(
            f"<li style='margin:2px 0'>{_html(link, seams[i] not in seams[:i])}</li>"
            for i, link in enumerate(self.links)
        )
        chain = f"<ol style='margin:4px 0 0'>{rows}</ol>" if rows else ""
        names = f"<p style='margin:4px 0;opacity:.7'>{escape(self.names_line())}</p>" if self.names else ""
        answer = f"<p style='margin:4px 0'>{escape(self.answer)}</p>"
        return f"<div><b>{escape(self.question)}</b>{answer}{names}{chain}</div>"

    def names_line(self) -> str:
        """Return the engine's names of the requests: "A = cmpl-1f3a, B = cmpl-77b0"."""
        return ", ".join(f"{letter} = {name}" for letter, name in self.names)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        links = [
            {name: value for name, value in asdict(link).items() if name != "place" or value} for link in self.links
        ]
        names = {"names": self.names_line()} if self.names else {}
        return {"question": self.question, "answer": self.answer, "links": links, **names}


def _html(link: Link, is_first_of_seam: bool) -> str:
    where = "before the recording" if link.event_number is None else f"event {link.event_number}"
    change = f" <b>{link.change:+d}</b>" if link.change else ""
    text = f"{escape(link.sentence)}{change} <small style='opacity:.7'>{where}</small>"
    if not link.seam or not is_first_of_seam:
        return text
    place = f" ({escape(link.place)})" if link.place else ""
    return f"{text}<br><small style='opacity:.7'><code>{escape(link.seam)}</code>{place} {escape(link.reason)}</small>"
